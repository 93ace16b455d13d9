#include "tests/bench/gpu/random_checkpoint.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/half_floats.h"
#include "third_party/absl/str_cat.h"

namespace tessera::bench {
namespace {

namespace fs = std::filesystem;
using kernels::BFloat16;
using nlohmann::json;

constexpr const char* kWeights = "model.safetensors";

constexpr int64_t kInt4Group = 128, kCodesOfWord = 8;

enum class Filled { kNormal, kOnes, kScales, kCodes };

struct NamedTensor {
  std::string name;
  int64_t rows = 1, width = 0;  // of one row: a norm
  Filled filled = Filled::kNormal;

  int64_t element_bytes() const { return filled == Filled::kCodes ? 4 : 2; }
  const char* type() const { return filled == Filled::kCodes ? "I32" : "BF16"; }
};

void AddMatrix(const std::string& name, int64_t outputs, int64_t inputs, Weights weights,
               std::vector<NamedTensor>* tensors) {
  if (weights == Weights::kBFloat16) {
    tensors->push_back({name + ".weight", outputs, inputs});
    return;
  }
  tensors->push_back({name + ".qweight", inputs, outputs / kCodesOfWord, Filled::kCodes});
  tensors->push_back(
      {name + ".qzeros", inputs / kInt4Group, outputs / kCodesOfWord, Filled::kCodes});
  tensors->push_back({name + ".scales", inputs / kInt4Group, outputs, Filled::kScales});
}

std::vector<NamedTensor> Tensors(const ModelShape& s, Weights weights) {
  std::vector<NamedTensor> tensors = {{"model.embed_tokens.weight", s.vocabulary, s.hidden},
                                      {"model.norm.weight", 1, s.hidden, Filled::kOnes},
                                      {"lm_head.weight", s.vocabulary, s.hidden}};
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string at = StrCat("model.layers.", i, ".");
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"}) {
      tensors.push_back({at + norm, 1, s.hidden, Filled::kOnes});
    }
    const int64_t queries = s.heads * s.head_dim, keys = s.kv_heads * s.head_dim;
    AddMatrix(at + "self_attn.q_proj", queries, s.hidden, weights, &tensors);
    AddMatrix(at + "self_attn.k_proj", keys, s.hidden, weights, &tensors);
    AddMatrix(at + "self_attn.v_proj", keys, s.hidden, weights, &tensors);
    AddMatrix(at + "self_attn.o_proj", s.hidden, queries, weights, &tensors);
    const auto add_ffn = [&](const std::string& of) {
      AddMatrix(of + "gate_proj", s.ffn, s.hidden, weights, &tensors);
      AddMatrix(of + "up_proj", s.ffn, s.hidden, weights, &tensors);
      AddMatrix(of + "down_proj", s.hidden, s.ffn, weights, &tensors);
    };
    if (s.experts == 0) add_ffn(at + "mlp.");
    for (int64_t e = 0; e < s.experts; ++e) add_ffn(StrCat(at, "mlp.experts.", e, "."));
    if (s.experts == 0) continue;
    AddMatrix(at + "mlp.gate", s.experts, s.hidden, weights, &tensors);
    for (const char* norm : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"}) {
      tensors.push_back({at + norm, 1, s.head_dim, Filled::kOnes});
    }
  }
  return tensors;
}

// Rows of random numbers are pieces of one long run, each from another place of it.
class RandomRows {
 public:
  RandomRows() {
    std::normal_distribution<float> normal(0.0f, 0.02f);
    for (BFloat16& number : normal_) number = kernels::FromFloat<BFloat16>(normal(generator_));
    for (uint32_t& word : codes_) word = static_cast<uint32_t>(generator_());
  }

  void Write(const NamedTensor& tensor, std::ofstream& file) {
    switch (tensor.filled) {
      case Filled::kNormal: return WritePiece(normal_, tensor.width, file);
      case Filled::kCodes: return WritePiece(codes_, tensor.width, file);
      case Filled::kOnes: return WriteSame(1.0f, tensor.width, file);
      case Filled::kScales: return WriteSame(kScale, tensor.width, file);
    }
  }

 private:
  static constexpr int64_t kCount = 1 << 20;
  static constexpr float kScale = 0.003f;  // codes less zeros then deviate by 0.02

  template <typename Number>
  static void WriteNumbers(const Number* from, int64_t count, std::ofstream& file) {
    file.write(reinterpret_cast<const char*>(from), count * static_cast<int64_t>(sizeof(Number)));
  }
  template <typename Number>
  void WritePiece(const std::vector<Number>& run, int64_t count, std::ofstream& file) {
    const auto places = static_cast<uint64_t>(kCount - count);
    WriteNumbers(run.data() + generator_() % places, count, file);
  }
  static void WriteSame(float value, int64_t count, std::ofstream& file) {
    const std::vector<BFloat16> row(count, kernels::FromFloat<BFloat16>(value));
    WriteNumbers(row.data(), count, file);
  }

  std::mt19937_64 generator_{1};
  std::vector<BFloat16> normal_ = std::vector<BFloat16>(kCount);
  std::vector<uint32_t> codes_ = std::vector<uint32_t>(kCount);
};

absl::StatusOr<json> ReadJson(const fs::path& path) {
  json value = json::parse(std::ifstream(path), nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) return absl::NotFoundError(StrCat(path.string(), ": no JSON there"));
  return value;
}

absl::Status WriteText(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  if (file.flush()) return absl::OkStatus();
  return absl::UnavailableError(StrCat(path.string(), ": cannot be written"));
}

absl::Status WriteConfig(const ModelShape& shape, Weights weights, const fs::path& from,
                         const fs::path& to) {
  auto config = ReadJson(from / "config.json");
  if (!config.ok()) return config.status();
  config->update({{"num_hidden_layers", shape.layers},
                  {"hidden_size", shape.hidden},
                  {"num_attention_heads", shape.heads},
                  {"num_key_value_heads", shape.kv_heads},
                  {"head_dim", shape.head_dim},
                  {"intermediate_size", shape.ffn},
                  {"max_position_embeddings", shape.context},
                  {"tie_word_embeddings", false},
                  {"vocab_size", shape.vocabulary}});
  if (shape.experts > 0) {
    config->update({{"architectures", {"Qwen3MoeForCausalLM"}},
                    {"model_type", "qwen3_moe"},
                    {"num_experts", shape.experts},
                    {"num_experts_per_tok", shape.experts_used},
                    {"moe_intermediate_size", shape.ffn},
                    {"norm_topk_prob", true},
                    {"decoder_sparse_step", 1},
                    {"mlp_only_layers", json::array()}});
  }
  if (weights == Weights::kInt4) {
    (*config)["quantization_config"] = {{"quant_method", "awq"},
                                        {"bits", 4},
                                        {"group_size", kInt4Group},
                                        {"zero_point", true},
                                        {"version", "gemm"}};
  }
  return WriteText(to / "config.json", config->dump());
}

absl::Status WriteTokenizer(const ModelShape& shape, const fs::path& from, const fs::path& to) {
  for (const char* name : {"tokenizer_config.json", "generation_config.json"}) {
    std::error_code failed;
    fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing, failed);
    if (failed) return absl::NotFoundError(StrCat((from / name).string(), ": ", failed.message()));
  }
  auto tokenizer = ReadJson(from / "tokenizer.json");
  if (!tokenizer.ok()) return tokenizer.status();
  json& vocabulary = (*tokenizer)["model"]["vocab"];
  for (auto id = static_cast<int64_t>(vocabulary.size()); id < shape.vocabulary; ++id) {
    vocabulary.emplace(StrCat("<t", id, ">"), id);
  }
  return WriteText(to / "tokenizer.json", tokenizer->dump());
}

absl::Status WriteWeights(const ModelShape& shape, Weights weights, const fs::path& path) {
  const std::vector<NamedTensor> tensors = Tensors(shape, weights);
  json header;
  int64_t offset = 0;
  for (const NamedTensor& t : tensors) {
    const int64_t bytes = t.rows * t.width * t.element_bytes();
    const json dimensions = t.rows == 1 ? json{t.width} : json{t.rows, t.width};
    header[t.name] = {
        {"dtype", t.type()}, {"shape", dimensions}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const uint64_t length = text.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file << text;
  RandomRows numbers;
  for (const NamedTensor& t : tensors) {
    for (int64_t row = 0; row < t.rows && file; ++row) numbers.Write(t, file);
  }
  if (file.flush()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat(path.string(), ": ", offset, " bytes could not be written; is the disk full?"));
}

}  // namespace

absl::StatusOr<ModelShape> NamedShape(std::string_view name) {
  if (name == "8b") return ModelShape{32, 4096, 32, 8, 128, 14336, 128256, 8192};
  if (name == "1b") return ModelShape{22, 2048, 32, 4, 64, 5632, 32000, 8192};
  if (name == "30b-a3b") return ModelShape{48, 2048, 32, 4, 128, 768, 151936, 8192, 128, 8};
  if (name == "tiny") return ModelShape{2, 256, 4, 2, 64, 512, 600, 1024};
  if (name == "tiny-experts") return ModelShape{12, 128, 4, 2, 64, 64, 600, 1024, 4, 2};
  return absl::InvalidArgumentError(StrCat("there is no shape \"", name, "\"; there are 8b, 1b, ",
                                           "30b-a3b, tiny and tiny-experts"));
}

absl::Status WriteRandomCheckpoint(const ModelShape& shape, Weights weights,
                                   const fs::path& tokenizer, const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) return absl::UnavailableError(StrCat(folder.string(), ": ", failed.message()));
  absl::Status status = WriteConfig(shape, weights, tokenizer, folder);
  if (status.ok()) status = WriteTokenizer(shape, tokenizer, folder);
  if (status.ok()) status = WriteWeights(shape, weights, folder / kWeights);
  return status;
}

}  // namespace tessera::bench
