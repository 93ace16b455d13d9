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

struct NamedTensor {
  std::string name;
  int64_t rows = 1, width = 0;  // of one row: a norm
};

std::vector<NamedTensor> Tensors(const ModelShape& s) {
  std::vector<NamedTensor> tensors = {{"model.embed_tokens.weight", s.vocabulary, s.hidden},
                                      {"model.norm.weight", 1, s.hidden},
                                      {"lm_head.weight", s.vocabulary, s.hidden}};
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string at = StrCat("model.layers.", i, ".");
    const std::vector<NamedTensor> layer = {
        {at + "input_layernorm.weight", 1, s.hidden},
        {at + "post_attention_layernorm.weight", 1, s.hidden},
        {at + "self_attn.q_proj.weight", s.heads * s.head_dim, s.hidden},
        {at + "self_attn.k_proj.weight", s.kv_heads * s.head_dim, s.hidden},
        {at + "self_attn.v_proj.weight", s.kv_heads * s.head_dim, s.hidden},
        {at + "self_attn.o_proj.weight", s.hidden, s.heads * s.head_dim},
        {at + "mlp.gate_proj.weight", s.ffn, s.hidden},
        {at + "mlp.up_proj.weight", s.ffn, s.hidden},
        {at + "mlp.down_proj.weight", s.hidden, s.ffn}};
    tensors.insert(tensors.end(), layer.begin(), layer.end());
  }
  return tensors;
}

// Rows of weights are pieces of one long run, each from another place of it.
class NormalRun {
 public:
  NormalRun() {
    std::normal_distribution<float> normal(0.0f, 0.02f);
    for (BFloat16& number : run_) number = kernels::FromFloat<BFloat16>(normal(generator_));
  }

  void Write(int64_t count, std::ofstream& file) {
    const auto begin = static_cast<int64_t>(generator_() % static_cast<uint64_t>(kCount - count));
    file.write(reinterpret_cast<const char*>(run_.data() + begin),
               count * static_cast<int64_t>(sizeof(BFloat16)));
  }

 private:
  static constexpr int64_t kCount = 1 << 20;
  std::mt19937_64 generator_{1};
  std::vector<BFloat16> run_ = std::vector<BFloat16>(kCount);
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

absl::Status WriteConfig(const ModelShape& shape, const fs::path& from, const fs::path& to) {
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

absl::Status WriteWeights(const ModelShape& shape, const fs::path& path) {
  const std::vector<NamedTensor> tensors = Tensors(shape);
  json header;
  int64_t offset = 0;
  for (const NamedTensor& t : tensors) {
    const int64_t bytes = t.rows * t.width * static_cast<int64_t>(sizeof(BFloat16));
    const json dimensions = t.rows == 1 ? json{t.width} : json{t.rows, t.width};
    header[t.name] = {
        {"dtype", "BF16"}, {"shape", dimensions}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const uint64_t length = text.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file << text;
  NormalRun numbers;
  const BFloat16 one = kernels::FromFloat<BFloat16>(1.0f);
  for (const NamedTensor& t : tensors) {
    if (t.rows == 1) {
      const std::vector<BFloat16> ones(t.width, one);
      file.write(reinterpret_cast<const char*>(ones.data()),
                 t.width * static_cast<int64_t>(sizeof(BFloat16)));
      continue;
    }
    for (int64_t row = 0; row < t.rows && file; ++row) numbers.Write(t.width, file);
  }
  if (file.flush()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat(path.string(), ": ", offset, " bytes could not be written; is the disk full?"));
}

}  // namespace

absl::StatusOr<ModelShape> NamedShape(std::string_view name) {
  if (name == "8b") return ModelShape{32, 4096, 32, 8, 128, 14336, 128256, 8192};
  if (name == "1b") return ModelShape{22, 2048, 32, 4, 64, 5632, 32000, 8192};
  if (name == "tiny") return ModelShape{2, 256, 4, 2, 64, 512, 600, 1024};
  return absl::InvalidArgumentError(
      StrCat("there is no shape \"", name, "\"; there are 8b, 1b and tiny"));
}

absl::Status WriteRandomCheckpoint(const ModelShape& shape, const fs::path& tokenizer,
                                   const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) return absl::UnavailableError(StrCat(folder.string(), ": ", failed.message()));
  absl::Status status = WriteConfig(shape, tokenizer, folder);
  if (status.ok()) status = WriteTokenizer(shape, tokenizer, folder);
  if (status.ok()) status = WriteWeights(shape, folder / kWeights);
  return status;
}

}  // namespace tessera::bench
