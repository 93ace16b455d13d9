#include "tests/worker/formation/made_checkpoint.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <random>
#include <string>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

constexpr int64_t kHidden = 48;
constexpr int64_t kHeadDim = 8;
constexpr int64_t kKeyGroups = 4, kValueHeads = 8, kKeyDim = 8, kValueDim = 6;  // of delta nets
constexpr int64_t kFfnWidth = 193;  // more than one group of int8 weights
constexpr int64_t kExpertWidth = 27;

// Tensors one after the other, as a safetensors file has them.
class TensorFile {
 public:
  explicit TensorFile(uint64_t seed) : random_(seed) {}

  // Values in [middle - spread, middle + spread).
  void Add(const std::string& name, const std::vector<int64_t>& shape, float middle, float spread) {
    int64_t count = 1;
    std::string shape_text;
    for (const int64_t size : shape) {
      count *= size;
      shape_text = StrCat(shape_text, shape_text.empty() ? "" : ",", size);
    }
    const size_t begin = values_.size() * sizeof(float);
    for (int64_t i = 0; i < count; ++i) {
      const auto unit = static_cast<float>(random_() >> 40) / static_cast<float>(1 << 24);
      values_.push_back(middle + spread * (2 * unit - 1));
    }
    header_ = StrCat(header_, header_.empty() ? "{" : ",", "\"", name,
                     "\":{\"dtype\":\"F32\",\"shape\":[", shape_text, "],\"data_offsets\":[", begin,
                     ",", values_.size() * sizeof(float), "]}");
  }
  // Keeps what it multiplies at about its size.
  void AddMatrix(const std::string& name, int64_t rows, int64_t columns) {
    Add(name + ".weight", {rows, columns}, 0, 1.7f / std::sqrt(static_cast<float>(columns)));
  }
  void AddNorm(const std::string& name, int64_t width, float middle = 1) {
    Add(name + ".weight", {width}, middle, 0.5f);
  }

  void Write(const std::filesystem::path& file) const {
    std::string header = header_ + "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const auto header_bytes = static_cast<uint64_t>(header.size());
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
    out << header;
    out.write(reinterpret_cast<const char*>(values_.data()),
              static_cast<std::streamsize>(values_.size() * sizeof(float)));
    REQUIRE(out.flush());
  }

 private:
  std::mt19937_64 random_;
  std::vector<float> values_;
  std::string header_;
};

int64_t HeadsOf(MadeModel kind) { return kind == MadeModel::kHybrid ? 8 : 6; }
int64_t KvHeadsOf(MadeModel kind) { return HeadsOf(kind) / 2; }
bool IsDelta(int layer, MadeModel kind) {
  return kind == MadeModel::kHybrid && layer != 1 && layer != 4;
}
// Weights of norms are 1 + w.
float NormMiddle(MadeModel kind) { return kind == MadeModel::kHybrid ? 0 : 1; }

void AddFfn(const std::string& prefix, int64_t width, TensorFile* file) {
  file->AddMatrix(prefix + "gate_proj", width, kHidden);
  file->AddMatrix(prefix + "up_proj", width, kHidden);
  file->AddMatrix(prefix + "down_proj", kHidden, width);
}

void AddAttention(const std::string& prefix, MadeModel kind, TensorFile* file) {
  const struct {
    const char* name;
    int64_t heads;
  } projections[] = {{"q_proj", (kind == MadeModel::kHybrid ? 2 : 1) * HeadsOf(kind)},  // and gates
                     {"k_proj", KvHeadsOf(kind)},
                     {"v_proj", KvHeadsOf(kind)}};
  for (const auto& [name, heads] : projections) {
    file->AddMatrix(prefix + name, heads * kHeadDim, kHidden);
    if (kind == MadeModel::kTiedWithBias) {
      file->Add(StrCat(prefix, name, ".bias"), {heads * kHeadDim}, 0, 0.5f);
    }
  }
  file->AddMatrix(prefix + "o_proj", kHidden, HeadsOf(kind) * kHeadDim);
  if (kind == MadeModel::kExperts || kind == MadeModel::kHybrid) {
    file->AddNorm(prefix + "q_norm", kHeadDim, NormMiddle(kind));
    file->AddNorm(prefix + "k_norm", kHeadDim, NormMiddle(kind));
  }
}

void AddDelta(const std::string& prefix, TensorFile* file) {
  constexpr int64_t kValues = kValueHeads * kValueDim;
  constexpr int64_t kChannels = 2 * kKeyGroups * kKeyDim + kValues;
  file->AddMatrix(prefix + "in_proj_qkv", kChannels, kHidden);
  file->AddMatrix(prefix + "in_proj_z", kValues, kHidden);
  file->AddMatrix(prefix + "in_proj_b", kValueHeads, kHidden);
  file->AddMatrix(prefix + "in_proj_a", kValueHeads, kHidden);
  file->Add(prefix + "conv1d.weight", {kChannels, 1, 4}, 0, 0.8f);
  file->Add(prefix + "A_log", {kValueHeads}, -1, 1);
  file->Add(prefix + "dt_bias", {kValueHeads}, 0, 1);
  file->AddNorm(prefix + "norm", kValueDim);
  file->AddMatrix(prefix + "out_proj", kHidden, kValues);
}

void AddLayer(int layer, MadeModel kind, TensorFile* file) {
  const std::string prefix = StrCat("model.layers.", layer, ".");
  file->AddNorm(prefix + "input_layernorm", kHidden, NormMiddle(kind));
  if (IsDelta(layer, kind)) {
    AddDelta(prefix + "linear_attn.", file);
  } else {
    AddAttention(prefix + "self_attn.", kind, file);
  }
  file->AddNorm(prefix + "post_attention_layernorm", kHidden, NormMiddle(kind));
  if (kind != MadeModel::kExperts || layer == 1) {
    AddFfn(prefix + "mlp.", kFfnWidth, file);
    return;
  }
  file->AddMatrix(prefix + "mlp.gate", kMadeExperts, kHidden);
  for (int expert = 0; expert < kMadeExperts; ++expert) {
    AddFfn(StrCat(prefix, "mlp.experts.", expert, "."), kExpertWidth, file);
  }
}

std::string Config(MadeModel kind) {
  const std::string shape =
      StrCat(R"("hidden_size": )", kHidden, R"(, "intermediate_size": )", kFfnWidth,
             R"(, "num_hidden_layers": )", kMadeLayers, R"(, "num_attention_heads": )",
             HeadsOf(kind), R"(, "num_key_value_heads": )", KvHeadsOf(kind), R"(, "head_dim": )",
             kHeadDim, R"(, "vocab_size": )", kMadeVocabulary,
             R"(, "max_position_embeddings": 128, "hidden_act": "silu", "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0, "torch_dtype": "float32", "bos_token_id": 0, "eos_token_id": 1, )");
  switch (kind) {
    case MadeModel::kDense:
      return StrCat(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", )", shape,
                    R"("tie_word_embeddings": false})");
    case MadeModel::kTiedWithBias:
      return StrCat(R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", )", shape,
                    R"("use_sliding_window": false, "tie_word_embeddings": true})");
    case MadeModel::kExperts:
      return StrCat(R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", )",
                    shape, R"("num_experts": )", kMadeExperts, R"(, "num_experts_per_tok": 2,)",
                    R"("moe_intermediate_size": )", kExpertWidth,
                    R"(, "decoder_sparse_step": 1, "mlp_only_layers": [1], "norm_topk_prob": true,
                    "use_sliding_window": false, "tie_word_embeddings": false})");
    case MadeModel::kHybrid:
      return StrCat(R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", )",
                    shape, R"("linear_num_key_heads": )", kKeyGroups,
                    R"(, "linear_num_value_heads": )", kValueHeads, R"(, "linear_key_head_dim": )",
                    kKeyDim, R"(, "linear_value_head_dim": )", kValueDim,
                    R"(, "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention",
                    "full_attention", "linear_attention", "linear_attention", "full_attention"],
                    "tie_word_embeddings": false})");
  }
  return "";
}

}  // namespace

std::vector<MadeModel> MadeModels() {
  return {MadeModel::kDense, MadeModel::kTiedWithBias, MadeModel::kExperts, MadeModel::kHybrid};
}

std::string_view Name(MadeModel kind) {
  switch (kind) {
    case MadeModel::kDense: return "dense";
    case MadeModel::kTiedWithBias: return "tied with bias";
    case MadeModel::kExperts: return "experts";
    case MadeModel::kHybrid: return "hybrid";
  }
  return "";
}

void WriteMadeCheckpoint(const std::filesystem::path& folder, MadeModel kind) {
  TensorFile file(static_cast<uint64_t>(kind) + 1);
  // Small beside what layers add: else a head that is the embedding repeats the last token.
  file.Add("model.embed_tokens.weight", {kMadeVocabulary, kHidden}, 0, 0.3f);
  for (int layer = 0; layer < kMadeLayers; ++layer) AddLayer(layer, kind, &file);
  file.AddNorm("model.norm", kHidden, NormMiddle(kind));
  if (kind != MadeModel::kTiedWithBias) {
    // Large enough for logits whose best is well ahead of the second best.
    file.Add("lm_head.weight", {kMadeVocabulary, kHidden}, 0, 1);
  }
  file.Write(folder / "model.safetensors");
  std::ofstream config(folder / "config.json");
  config << Config(kind);
  REQUIRE(config.flush());
}

}  // namespace tessera::worker
