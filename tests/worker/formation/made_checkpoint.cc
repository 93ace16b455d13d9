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
constexpr int64_t kKvHeads = 3;
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
  void AddNorm(const std::string& name, int64_t width) { Add(name + ".weight", {width}, 1, 0.5f); }

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

void AddFfn(const std::string& prefix, int64_t width, TensorFile* file) {
  file->AddMatrix(prefix + "gate_proj", width, kHidden);
  file->AddMatrix(prefix + "up_proj", width, kHidden);
  file->AddMatrix(prefix + "down_proj", kHidden, width);
}

void AddAttention(const std::string& prefix, MadeModel kind, TensorFile* file) {
  const struct {
    const char* name;
    int64_t heads;
  } projections[] = {{"q_proj", kMadeHeads}, {"k_proj", kKvHeads}, {"v_proj", kKvHeads}};
  for (const auto& [name, heads] : projections) {
    file->AddMatrix(prefix + name, heads * kHeadDim, kHidden);
    if (kind == MadeModel::kTiedWithBias) {
      file->Add(StrCat(prefix, name, ".bias"), {heads * kHeadDim}, 0, 0.5f);
    }
  }
  file->AddMatrix(prefix + "o_proj", kHidden, kMadeHeads * kHeadDim);
  if (kind == MadeModel::kExperts) {
    file->AddNorm(prefix + "q_norm", kHeadDim);
    file->AddNorm(prefix + "k_norm", kHeadDim);
  }
}

void AddLayer(int layer, MadeModel kind, TensorFile* file) {
  const std::string prefix = StrCat("model.layers.", layer, ".");
  file->AddNorm(prefix + "input_layernorm", kHidden);
  AddAttention(prefix + "self_attn.", kind, file);
  file->AddNorm(prefix + "post_attention_layernorm", kHidden);
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
             R"(, "num_hidden_layers": )", kMadeLayers, R"(, "num_attention_heads": )", kMadeHeads,
             R"(, "num_key_value_heads": )", kKvHeads, R"(, "head_dim": )", kHeadDim,
             R"(, "vocab_size": )", kMadeVocabulary,
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
  }
  return "";
}

}  // namespace

std::vector<MadeModel> MadeModels() {
  return {MadeModel::kDense, MadeModel::kTiedWithBias, MadeModel::kExperts};
}

std::string_view Name(MadeModel kind) {
  switch (kind) {
    case MadeModel::kDense: return "dense";
    case MadeModel::kTiedWithBias: return "tied with bias";
    case MadeModel::kExperts: return "experts";
  }
  return "";
}

void WriteMadeCheckpoint(const std::filesystem::path& folder, MadeModel kind) {
  TensorFile file(static_cast<uint64_t>(kind) + 1);
  // Small beside what layers add: else a head that is the embedding repeats the last token.
  file.Add("model.embed_tokens.weight", {kMadeVocabulary, kHidden}, 0, 0.3f);
  for (int layer = 0; layer < kMadeLayers; ++layer) AddLayer(layer, kind, &file);
  file.AddNorm("model.norm", kHidden);
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
