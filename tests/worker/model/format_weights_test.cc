// Checkpoints of formats beyond AWQ and GPTQ: each weight is what the package that wrote it says, a
// rank's slice is that part of the whole wherever it begins, and damage is refused by name.
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "kernels/cpu/device/cpu_device.h"
#include "proto/model/model_folder.h"
#include "proto/model/model_tensors.h"
#include "tests/fakes/uniform_model.h"
#include "tests/temporary_folder.h"
#include "tests/worker/model/gguf_copies.h"
#include "tests/worker/model/tiny_model.h"
#include "third_party/absl/str_cat.h"
#include "worker/weights/safetensors.h"
#include "worker/weights/weights.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using kernels::DType;
using kernels::PackedWeights;
using Rows = std::vector<std::vector<float>>;
using Change = std::function<void(v1::WorkerShare&)>;

constexpr const char* kModels[] = {
    "llama_fp8_blocks", "qwen2_eight_bits",    "llama_pack_quantized", "llama_gptq_act_order",
    "llama_auto_round", "llama_nf4",           "llama_fbgemm_fp8",     "ministral3_fp8",
    "qwen3_nvfp4",      "llama_modelopt_mixed"};

std::unique_ptr<kernels::Device> Device() {
  auto device = kernels::CreateCpuDevice({.memory_bytes = 1 << 26, .cores_shared = true});
  REQUIRE(device.ok());
  return *std::move(device);
}

absl::StatusOr<std::unique_ptr<ModelWeights>> Load(const fs::path& folder, kernels::Device& device,
                                                   const Change& change = {},
                                                   DType weight_dtype = DType::kF32) {
  const auto model = ReadModelFolder(folder.string());
  if (!model.ok()) return model.status();
  ModelOptions options = {
      .folder = folder, .model = *model, .share = WholeShare(*model), .limits = {}};
  options.weight_dtype = weight_dtype;
  if (change) change(options.share);
  return LoadWeights(options, device, nullptr);
}

Rows RowsOf(kernels::Device& device, const PackedWeights& packed) {
  const int64_t rows = packed.spec.out_features, columns = packed.spec.in_features;
  std::vector<float> flat(rows * columns);
  const kernels::TensorView view(flat.data(), DType::kF32, {rows, columns});
  REQUIRE(device.ops().UnpackWeightRows(packed, 0, view).ok());
  Rows all;
  for (auto row = flat.begin(); row != flat.end(); row += columns) {
    all.emplace_back(row, row + columns);
  }
  return all;
}

Rows Columns(const Rows& rows, int64_t begin, int64_t end) {
  Rows part;
  for (const auto& row : rows) part.emplace_back(row.begin() + begin, row.begin() + end);
  return part;
}

// Ranges of rows, one below the other.
Rows Below(const Rows& rows, const std::vector<std::pair<int64_t, int64_t>>& ranges) {
  Rows part;
  for (const auto& [begin, end] : ranges) {
    part.insert(part.end(), rows.begin() + begin, rows.begin() + end);
  }
  return part;
}

// As zlib's.
uint32_t Crc32(const Rows& rows) {
  uint32_t sum = ~0u;
  for (const auto& row : rows) {
    for (const float value : row) {
      const float unsigned_zero = value + 0.0f;
      uint32_t bits;
      std::memcpy(&bits, &unsigned_zero, sizeof(bits));
      for (int byte = 0; byte < 4; ++byte) {
        sum ^= bits >> (8 * byte) & 0xff;
        for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
      }
    }
  }
  return ~sum;
}

// A golden model's values.json: checksums of what its matrices are worth.
class SumsCheck {
 public:
  SumsCheck(const std::string& name, kernels::Device& device) : device_(device) {
    std::ifstream file(GoldenFolder(name) / "values.json");
    sums_ = nlohmann::json::parse(file);
  }
  size_t size() const { return sums_.size(); }
  void Check(const std::string& matrix, const PackedWeights& packed) const {
    INFO(matrix);
    CHECK(Crc32(RowsOf(device_, packed)) == sums_.at(matrix).get<uint32_t>());
  }

 private:
  kernels::Device& device_;
  nlohmann::json sums_;
};

// The golden model as it is, but for `change` of the bytes of its weight file.
std::string ErrorAfter(const std::string& name, const std::function<void(std::string&)>& change) {
  const tests::TemporaryFolder folder;
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::ifstream in(GoldenFolder(name) / file, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    std::string bytes = text.str();
    if (std::string_view(file) == "model.safetensors") change(bytes);
    folder.Write(file, bytes);
  }
  const auto device = Device();
  return std::string(Load(folder.path(), *device).status().message());
}

// Where a tensor begins in the golden model's weight file.
int64_t BeginOf(const std::string& name, const std::string& tensor) {
  const auto file = SafetensorsFile::Open(GoldenFolder(name) / "model.safetensors");
  REQUIRE(file.ok());
  for (const SafetensorsEntry& entry : (*file)->entries()) {
    if (entry.name == tensor) return entry.begin;
  }
  FAIL("no tensor " << tensor);
  return 0;
}

}  // namespace

TEST_CASE("weights of a format are exactly what its own package reads") {
  for (const char* name : kModels) {
    const auto device = Device();
    const auto weights = Load(GoldenFolder(name), *device);
    INFO(name << ": " << weights.status().ToString());
    REQUIRE(weights.ok());
    const SumsCheck sums(name, *device);
    REQUIRE(sums.size() == 4 * (*weights)->layers.size());
    for (size_t i = 0; i < (*weights)->layers.size(); ++i) {
      const LayerWeights& layer = (*weights)->layers[i];
      sums.Check(StrCat(i, ".qkv"), layer.attention.qkv.matrix);
      sums.Check(StrCat(i, ".output"), layer.attention.output.matrix);
      sums.Check(StrCat(i, ".up"), layer.ffn.up.matrix);
      sums.Check(StrCat(i, ".down"), layer.ffn.down.matrix);
    }
  }
}

TEST_CASE("experts of MXFP4 are exactly what transformers decodes") {
  const char* name = "gpt_oss_mxfp4";
  const auto device = Device();
  const auto weights = Load(GoldenFolder(name), *device);
  INFO(weights.status().ToString());
  REQUIRE(weights.ok());
  const SumsCheck sums(name, *device);
  const size_t experts = (*weights)->layers[0].ffn.expert_up.size();
  REQUIRE(experts >= 2);
  REQUIRE(sums.size() == 2 * experts * (*weights)->layers.size());
  for (size_t i = 0; i < (*weights)->layers.size(); ++i) {
    const FfnWeights& ffn = (*weights)->layers[i].ffn;
    for (size_t e = 0; e < experts; ++e) {
      sums.Check(StrCat(i, ".up.", e), ffn.expert_up[e]);
      sums.Check(StrCat(i, ".down.", e), ffn.expert_down[e]);
    }
  }
}

// 4 heads of 8; of 48 or 64 ffn columns a part that begins and ends within blocks and groups.
TEST_CASE("a rank has its rows and columns of the whole, exactly") {
  for (const char* name : kModels) {
    const auto device = Device();
    const auto whole = Load(GoldenFolder(name), *device);
    REQUIRE(whole.ok());
    const bool kept = (*whole)->layers[0].ffn.down.matrix.spec.weight_dtype == DType::kI4;
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{8, 44}, {kept ? 24 : 21, 47}}) {
      INFO(name << ", ffn columns " << begin << " to " << end);
      const auto part = Load(GoldenFolder(name), *device, [&](v1::WorkerShare& share) {
        v1::LayerShare& own = tests::PartOf(share);
        own.mutable_query_heads()->set_begin(3);
        own.mutable_kv_heads()->set_begin(own.kv_heads().end() - 1);
        own.mutable_ffn_columns()->set_begin(begin);
        own.mutable_ffn_columns()->set_end(end);
      });
      INFO(part.status().ToString());
      REQUIRE(part.ok());
      for (size_t i = 0; i < (*whole)->layers.size(); ++i) {
        const LayerWeights &all = (*whole)->layers[i], &own = (*part)->layers[i];
        const auto rows = [&](const PackedWeights& packed) { return RowsOf(*device, packed); };
        CHECK(rows(own.attention.output.matrix) ==
              Columns(rows(all.attention.output.matrix), 24, 32));
        const Rows qkv = rows(all.attention.qkv.matrix);
        const auto k_end = 32 + (static_cast<int64_t>(qkv.size()) - 32) / 2;
        const auto v_end = static_cast<int64_t>(qkv.size());
        CHECK(rows(own.attention.qkv.matrix) ==
              Below(qkv, {{24, 32}, {k_end - 8, k_end}, {v_end - 8, v_end}}));
        const Rows up = rows(all.ffn.up.matrix);
        const auto width = static_cast<int64_t>(up.size()) / 2;
        CHECK(rows(own.ffn.up.matrix) == Below(up, {{begin, end}, {width + begin, width + end}}));
        CHECK(rows(own.ffn.down.matrix) == Columns(rows(all.ffn.down.matrix), begin, end));
      }
    }
  }
}

TEST_CASE("codes are kept where a matrix has 4 bits or fewer in order, else bytes are counted") {
  const auto device = Device();
  const auto load = [&](const char* name) {
    auto weights = Load(GoldenFolder(name), *device);
    REQUIRE(weights.ok());
    return *std::move(weights);
  };
  const auto dtype = [](const LinearWeights& linear) { return linear.matrix.spec.weight_dtype; };
  // Layer 0 of both has a matrix in 16 bits beside those of 4 that are computed with it as one.
  const auto packed = load("llama_pack_quantized");
  CHECK(dtype(packed->layers[0].attention.qkv) == DType::kF32);
  CHECK(dtype(packed->layers[0].attention.output) == DType::kI4);
  CHECK(dtype(packed->layers[0].ffn.up) == DType::kI4);
  CHECK(dtype(packed->layers[0].ffn.down) == DType::kF32);
  CHECK(dtype(packed->layers[1].ffn.down) == DType::kI4);
  // q and v of two layers, and a down of 8 bits.
  CHECK(packed->decoded.stored_bytes == 2 * (32 + 16) * 32 / 2 + 32 * 48);
  const auto round = load("llama_auto_round");
  CHECK(dtype(round->layers[0].attention.qkv) == DType::kI4);
  CHECK(dtype(round->layers[0].ffn.up) == DType::kF32);
  const auto fp8 = load("llama_fp8_blocks");
  CHECK(fp8->decoded.stored_bytes == 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 48));
  CHECK(fp8->decoded.held_bytes >= 4 * fp8->decoded.stored_bytes);
  // q, k and v are FP8; of gate and up only one is, and the others are int8.
  const auto eight = load("qwen2_eight_bits");
  CHECK(dtype(eight->layers[0].attention.qkv) == DType::kF8);
  CHECK(dtype(eight->layers[0].ffn.up) == DType::kF32);
  CHECK(load("llama")->decoded.stored_bytes == 0);
  // Floats of four bits become codes of a byte where the device computes groups of 16.
  const auto nvfp4 = load("qwen3_nvfp4");
  for (const LayerWeights& layer : nvfp4->layers) {
    for (const LinearWeights* linear : {&layer.attention.qkv, &layer.ffn.up, &layer.ffn.down}) {
      CHECK(dtype(*linear) == DType::kI8);
      CHECK(linear->matrix.spec.group_size == 16);
    }
  }
  CHECK(nvfp4->decoded.stored_bytes == 0);
  const auto int8 = Load(GoldenFolder("qwen3_nvfp4"), *device, {}, DType::kI8);
  REQUIRE(int8.ok());
  CHECK((*int8)->layers[0].ffn.up.matrix.spec.group_size == 128);
}

TEST_CASE("codes and scales that are no numbers are refused by name") {
  const std::string up = "model.layers.1.mlp.up_proj.weight";
  CHECK_THAT(ErrorAfter("llama_fp8_blocks",
                        [&](std::string& bytes) {
                          bytes[BeginOf("llama_fp8_blocks", up) + 32 * 7 + 30] = 0x7f;
                        }),
             Contains("tensor '" + up + "'") && Contains("row 7 has a code that is no number"));
  CHECK_THAT(ErrorAfter("llama_fp8_blocks",
                        [&](std::string& bytes) {
                          const int64_t at = BeginOf("llama_fp8_blocks", up + "_scale_inv") + 4;
                          bytes[at + 2] = static_cast<char>(0x80);
                          bytes[at + 3] = 0x7f;
                        }),
             Contains(up + "_scale_inv' is not finite at 1"));
  CHECK_THAT(ErrorAfter("llama_nf4",
                        [&](std::string& bytes) {
                          const size_t at = bytes.find("\"blocksize\": 64");
                          REQUIRE(at != std::string::npos);
                          bytes[at + 13] = '3';
                        }),
             Contains(".weight.quant_state.bitsandbytes__nf4' says other sizes of blocks"));
  CHECK_THAT(ErrorAfter("llama_nf4",
                        [&](std::string& bytes) {
                          const int64_t at = BeginOf("llama_nf4", up + ".quant_map");
                          bytes[at + 2] = static_cast<char>(0x80);
                          bytes[at + 3] = 0x7f;
                        }),
             Contains(up + ".quant_map' holds what is not finite"));
  const std::string fours = "model.layers.1.mlp.up_proj.weight_";
  CHECK_THAT(ErrorAfter("qwen3_nvfp4",
                        [&](std::string& bytes) {
                          bytes[BeginOf("qwen3_nvfp4", fours + "scale") + 2 * 5] = 0x7f;
                        }),
             Contains(fours + "packed'") && Contains("a scale of row 5 is no finite number"));
  CHECK_THAT(ErrorAfter("qwen3_nvfp4",
                        [&](std::string& bytes) {
                          const int64_t at = BeginOf("qwen3_nvfp4", fours + "global_scale");
                          bytes.replace(static_cast<size_t>(at), 4, std::string(4, '\0'));
                        }),
             Contains(fours + "global_scale' is 0; it must be a finite number"));
  const std::string packed = "model.layers.1.mlp.up_proj.weight_scale";
  CHECK_THAT(
      ErrorAfter("llama_pack_quantized",
                 [&](std::string& bytes) {
                   const int64_t at = BeginOf("llama_pack_quantized", packed);
                   bytes[at] = static_cast<char>(0x80);
                   bytes[at + 1] = 0x7f;
                 }),
      Contains("up_proj.weight_packed'") && Contains("scale of output 0 in group 0 is not finite"));
}

// What transformers 5 keeps of experts while it computes, and saves where it is asked to: gate and
// up of all in one tensor, down in another; some families' other tensors get other names too.
Tensors Stacked(const Tensors& published,
                const std::vector<std::pair<std::string, std::string>>& names) {
  Tensors stacked;
  std::map<std::string, std::map<int, std::map<std::string, Numbers>>> experts;
  for (const auto& [name, tensor] : published) {
    const size_t at = name.find(".experts.");
    if (at == std::string::npos) {
      std::string now = name;
      for (const auto& [from, to] : names) {
        const size_t found = now.find(from);
        if (found != std::string::npos) now.replace(found, from.size(), to);
      }
      stacked[now] = tensor;
      continue;
    }
    const std::string layer = name.substr(0, name.rfind('.', at - 1) + 1);
    const size_t part = name.find('.', at + 9);
    experts[layer][std::stoi(name.substr(at + 9))][name.substr(part + 1, 2)] = tensor;
  }
  for (const auto& [layer, all] : experts) {
    Numbers up, down;
    for (const auto& [index, parts] : all) {
      const bool by_number = parts.contains("w1");
      Append(parts.at(by_number ? "w1" : "ga"), &up);
      Append(parts.at(by_number ? "w3" : "up"), &up);
      Append(parts.at(by_number ? "w2" : "do"), &down);
    }
    const auto count = static_cast<int64_t>(all.size());
    for (Numbers* both : {&up, &down}) {
      both->shape.insert(both->shape.begin(), count);
      both->shape[1] /= count;
    }
    stacked[layer + "mlp.experts.gate_up_proj"] = std::move(up);
    stacked[layer + "mlp.experts.down_proj"] = std::move(down);
  }
  return stacked;
}

TEST_CASE("experts in one tensor of all, under the names of transformers 5, are the same model") {
  const std::vector<std::pair<std::string, std::string>> none,
      granite = {{".input_linear.weight", ".experts.gate_up_proj"},
                 {".output_linear.weight", ".experts.down_proj"},
                 {".router.layer.", ".router."}};
  for (const auto& [golden, names] :
       {std::pair("granite_moe", granite),
        {"minimax_m2",
         {{".block_sparse_moe.gate.", ".mlp.gate."}, {".block_sparse_moe.e_", ".mlp.e_"}}},
        {"ernie4_5_moe", {{".mlp.moe_statics.", ".mlp.gate.moe_statics."}}},
        {"phimoe", {{".block_sparse_moe.gate.", ".mlp.router."}}},
        {"olmoe", none},
        {"hunyuan_moe", none},
        {"glm4_moe", none},
        {"qwen2_moe", none}}) {
    INFO(golden);
    const Tensors published = ReadTensors(golden), stacked = Stacked(published, names);
    REQUIRE((stacked.size() < published.size() || names.size() == 3));
    const tests::TemporaryFolder folder;
    WriteCheckpoint(folder, "", ReadConfig(golden), stacked);
    const auto checked = ReadCheckedModel(folder.path().string());
    INFO(checked.status().ToString());
    REQUIRE(checked.ok());
    CHECK(checked->warnings.empty());
    TinyModel expected(GoldenFolder(golden), {}), found(folder.path(), {});
    const GoldenRun run = ReadGolden(golden)[0];
    const auto tokens = static_cast<int64_t>(run.prompt.size());
    const std::vector<Chunk> chunks = {{.tokens = run.prompt, .prompt_tokens = tokens}};
    CHECK(found.Run(chunks) == expected.Run(chunks));
  }
}

}  // namespace tessera::worker
