// int4 checkpoints: a rank's slice is that part of the whole matrix, also where it begins within a
// word or a group; and what cannot be read is refused by name.
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernels/cpu/device/cpu_device.h"
#include "proto/model/model_folder.h"
#include "tests/fakes/uniform_model.h"
#include "tests/temporary_folder.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/weights/safetensors.h"
#include "worker/weights/weights.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using kernels::DType;
using Matrix = std::vector<std::vector<float>>;
using Change = std::function<void(v1::WorkerShare&)>;

std::unique_ptr<kernels::Device> Device() {
  auto device = kernels::CreateCpuDevice({.memory_bytes = 1 << 26, .cores_shared = true});
  REQUIRE(device.ok());
  return *std::move(device);
}

absl::StatusOr<std::unique_ptr<ModelWeights>> Load(const fs::path& folder, const Change& change,
                                                   kernels::Device& device) {
  const auto model = ReadModelFolder(folder.string());
  if (!model.ok()) return model.status();
  ModelOptions options = {
      .folder = folder, .model = *model, .share = WholeShare(*model), .limits = {}};
  options.weight_dtype = DType::kF32;
  change(options.share);
  return LoadWeights(options, device, nullptr);
}

// Rows and columns of a packed matrix, as floats.
Matrix Part(kernels::Device& device, const kernels::PackedWeights& packed, int64_t row_begin,
            int64_t row_end, int64_t column_begin, int64_t column_end) {
  const int64_t rows = packed.spec.out_features, columns = packed.spec.in_features;
  std::vector<float> flat(rows * columns);
  const kernels::TensorView view(flat.data(), DType::kF32, {rows, columns});
  REQUIRE(device.ops().UnpackWeightRows(packed, 0, view).ok());
  Matrix part;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const auto begin = flat.begin() + row * columns;
    part.emplace_back(begin + column_begin, begin + column_end);
  }
  return part;
}

Matrix All(kernels::Device& device, const kernels::PackedWeights& packed) {
  return Part(device, packed, 0, packed.spec.out_features, 0, packed.spec.in_features);
}

Matrix Below(Matrix first, const Matrix& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

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
  const auto weights = Load(
      folder.path(), [](v1::WorkerShare&) {}, *device);
  return std::string(weights.status().message());
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

void Replace(std::string& bytes, const std::string& from, const std::string& to) {
  REQUIRE(from.size() == to.size());
  const size_t at = bytes.find(from);
  REQUIRE(at != std::string::npos);
  bytes.replace(at, from.size(), to);
}

}  // namespace

// 4 heads of 16, 2 kv heads, hidden 64, ffn 96; groups of 32 (AWQ) and 16 (GPTQ).
TEST_CASE("int4: a rank has its rows and columns of the whole, exactly") {
  for (const char* name : {"qwen2_awq", "llama_gptq"}) {
    INFO(name);
    const auto device = Device();
    const auto whole = Load(
        GoldenFolder(name), [](v1::WorkerShare&) {}, *device);
    REQUIRE(whole.ok());
    for (const auto& [first_column, end_column] : {std::pair(32, 96), {8, 44}, {0, 20}}) {
      INFO("ffn columns " << first_column << " to " << end_column);
      const auto part = Load(
          GoldenFolder(name),
          [&](v1::WorkerShare& share) {
            tests::PartOf(share).mutable_query_heads()->set_begin(3);
            tests::PartOf(share).mutable_kv_heads()->set_begin(1);
            tests::PartOf(share).mutable_ffn_columns()->set_begin(first_column);
            tests::PartOf(share).mutable_ffn_columns()->set_end(end_column);
          },
          *device);
      INFO(part.status().ToString());
      REQUIRE(part.ok());
      const LayerWeights &all = (*whole)->layers[1], &own = (*part)->layers[1];
      CHECK(own.ffn.up.matrix.spec.weight_dtype == DType::kI4);
      CHECK(All(*device, own.attention.output.matrix) ==
            Part(*device, all.attention.output.matrix, 0, 64, 48, 64));
      const kernels::PackedWeights& qkv = all.attention.qkv.matrix;
      CHECK(All(*device, own.attention.qkv.matrix) ==
            Below(Part(*device, qkv, 48, 64, 0, 64),
                  Below(Part(*device, qkv, 80, 96, 0, 64), Part(*device, qkv, 112, 128, 0, 64))));
      const kernels::PackedWeights& up = all.ffn.up.matrix;
      CHECK(All(*device, own.ffn.up.matrix) ==
            Below(Part(*device, up, first_column, end_column, 0, 64),
                  Part(*device, up, 96 + first_column, 96 + end_column, 0, 64)));
      CHECK(All(*device, own.ffn.down.matrix) ==
            Part(*device, all.ffn.down.matrix, 0, 64, first_column, end_column));
    }
  }
}

TEST_CASE("int4: matrices take half a byte a weight and a word a group, the rest is as it was") {
  const auto device = Device();
  const auto weights = Load(
      GoldenFolder("qwen2_awq"), [](v1::WorkerShare&) {}, *device);
  REQUIRE(weights.ok());
  const kernels::PackedWeights& down = (*weights)->layers[0].ffn.down.matrix;
  CHECK(down.spec.group_size == 32);
  CHECK(device->ops().PackedWeightBytes(down.spec) == 64 * 96 / 2 + 64 * 3 * 4);
  CHECK((*weights)->head.matrix.spec.weight_dtype == DType::kF32);
}

TEST_CASE("int4: columns that begin within a group of a few inputs are refused") {
  const auto device = Device();
  const auto part = Load(
      GoldenFolder("qwen2_awq"),
      [](v1::WorkerShare& share) { tests::PartOf(share).mutable_ffn_columns()->set_begin(36); },
      *device);
  CHECK_THAT(std::string(part.status().message()),
             Contains("inputs [36, 96) of 'model.layers.0.mlp.down_proj'") &&
                 Contains("within a group of 32") && Contains("multiple of 8"));
}

TEST_CASE("int4: what cannot be computed with is refused by name") {
  const std::string up = "model.layers.1.mlp.up_proj";
  CHECK_THAT(ErrorAfter("llama_gptq",
                        [&](std::string& bytes) {
                          const int64_t at = BeginOf("llama_gptq", up + ".g_idx") + 4 * 20;
                          REQUIRE(bytes[at] == 1);
                          bytes[at] = 4;
                        }),
             Contains(up + ".g_idx' puts input 20 into group 4 of 4"));
  CHECK_THAT(ErrorAfter("qwen2_awq",
                        [&](std::string& bytes) {
                          const int64_t at = BeginOf("qwen2_awq", up + ".scales");
                          bytes[at + 1] = 0x7c;  // infinity, or NaN
                        }),
             Contains("model.safetensors: tensor '" + up + ".qweight'") &&
                 Contains("scale of output 0 in group 0 is not finite"));
  CHECK_THAT(ErrorAfter("qwen2_awq",
                        [](std::string& bytes) {
                          Replace(bytes, "layers.0.self_attn.k_proj.qweight",
                                  "layers.0.self_attn.k_proj.qweighs");
                        }),
             Contains("'model.layers.0.self_attn.k_proj.weight' is in none"));
  CHECK_THAT(ErrorAfter("qwen2_awq",
                        [](std::string& bytes) {
                          Replace(bytes, "layers.0.mlp.down_proj.qzeros",
                                  "layers.0.mlp.down_proj.qzeroz");
                        }),
             Contains("'model.layers.0.mlp.down_proj.qzeros' is in none"));
  CHECK_THAT(ErrorAfter("mixtral_awq_bf16",
                        [](std::string& bytes) {
                          Replace(bytes, "layers.0.block_sparse_moe.experts.2.w1.qweight",
                                  "layers.0.block_sparse_moe.experts.2.w1.qweighs");
                        }),
             Contains("experts.2.w1.weight' is in none"));
}

}  // namespace tessera::worker
