// Weights in bfloat16 and int8: the model computes what a float32 model with those very weights
// does. How much a model of real size loses by the rounding itself is another question, which tiny
// checkpoints with sharp attention cannot answer.
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/cpu/device/cpu_device.h"
#include "kernels/half_floats.h"
#include "kernels/ops.h"
#include "tests/temporary_folder.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/weights/safetensors.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;
using kernels::DType;
using kernels::Isa;
using kernels::TensorView;

bool Contains(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

// Tensors that are looked up keep more than those that are multiplied, and a router keeps all.
bool IsTable(const std::string& name) { return Contains(name, "embed_"); }
bool IsRouter(const std::string& name) { return Contains(name, "gate.weight"); }

void RoundToBf16(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    values[i] = kernels::ToFloat(kernels::FromFloat<kernels::BFloat16>(values[i]));
  }
}

void Quantise(kernels::Device& device, float* values, int64_t rows, int64_t columns) {
  kernels::PackedWeights packed;
  packed.spec = {.in_features = columns, .out_features = rows, .weight_dtype = DType::kI8};
  auto memory = device.Allocate(device.ops().PackedWeightBytes(packed.spec));
  REQUIRE(memory.ok());
  packed.data = memory->data();
  const TensorView view(values, DType::kF32, {rows, columns});
  REQUIRE(device.ops().PackWeightRows(packed, 0, view).ok());
  REQUIRE(device.ops().UnpackWeightRows(packed, 0, view).ok());
}

// A copy of a checkpoint in float32 with every matrix rounded as `dtype` stores it; removed at the
// end.
class RoundedCopy {
 public:
  RoundedCopy(const std::string& name, DType dtype) {
    fs::copy_file(GoldenFolder(name) / "config.json", folder_ / "config.json");
    const auto file = SafetensorsFile::Open(GoldenFolder(name) / "model.safetensors");
    REQUIRE(file.ok());
    auto device = kernels::CreateCpuDevice({.memory_bytes = 1 << 24, .cores_shared = true});
    REQUIRE(device.ok());
    nlohmann::json header;
    std::string data;
    for (const SafetensorsEntry& entry : (*file)->entries()) {
      std::vector<float> values = FloatsOf(**file, entry);
      // Tables of 16 bits stay as they are.
      const bool stays = IsRouter(entry.name) || (IsTable(entry.name) && entry.dtype == "F16");
      const bool rounded = entry.shape.size() == 2 && !stays;
      if (rounded && dtype == DType::kI8 && !IsTable(entry.name)) {
        Quantise(**device, values.data(), entry.shape[0], entry.shape[1]);
      } else if (rounded) {
        RoundToBf16(values.data(), static_cast<int64_t>(values.size()));
      }
      const size_t begin = data.size();
      data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      header[entry.name] = {
          {"dtype", "F32"}, {"shape", entry.shape}, {"data_offsets", {begin, data.size()}}};
    }
    const std::string text = header.dump();
    const uint64_t size = text.size();
    std::ofstream(folder_ / "model.safetensors", std::ios::binary)
        .write(reinterpret_cast<const char*>(&size), sizeof(size))
        .write(text.data(), static_cast<std::streamsize>(text.size()))
        .write(data.data(), static_cast<std::streamsize>(data.size()));
  }
  const fs::path& folder() const { return folder_; }

 private:
  const tests::TemporaryFolder temporary_;
  const fs::path& folder_ = temporary_.path();
};

// Largest relative error between the packed model and the rounded one, on the golden tokens.
double LargestError(const std::string& name, const TinyOptions& packed, const fs::path& rounded) {
  const GoldenRun run = ReadGolden(name)[1];
  std::vector<int32_t> tokens = run.prompt;
  tokens.insert(tokens.end(), run.tokens.begin(), run.tokens.end());
  const Chunk chunk = {.tokens = tokens, .prompt_tokens = static_cast<int64_t>(tokens.size())};
  TinyModel model(GoldenFolder(name), packed);
  TinyModel oracle(rounded, {.isa = Isa::kReference});
  const auto got = model.Run({chunk}), want = oracle.Run({chunk});
  double error = 0;
  for (size_t i = 0; i < want.size(); ++i) error = std::max(error, RelativeError(got[i], want[i]));
  return error;
}

// Single-file checkpoints whose head is a tensor of its own (a tied one is rounded as a
// head, but not as a table).
const std::vector<std::string> kModels = {"llama",          "llama_bias_wide_heads",
                                          "llama3_scaled",  "llama_linear_v4",
                                          "mistral_window", "qwen2",
                                          "mixtral",        "qwen3_moe"};

std::vector<Isa> Isas() { return kernels::SupportedIsas(kernels::DetectCpuFeatures()); }

// Where activations stay float32, only the order of sums differs. Paths from AVX512_BF16 on
// may multiply activations rounded to bfloat16 where products may be that, which sharp attention
// magnifies; where that makes a router choose another expert, no bound holds.
void CheckRounded(DType weight_dtype) {
  for (const std::string& name : kModels) {
    const RoundedCopy rounded(name, weight_dtype);
    for (Isa isa : Isas()) {
      for (DType products : {DType::kF32, DType::kBF16}) {
        const bool rounds_activations = products == DType::kBF16 && isa >= Isa::kAvx512Bf16;
        if (rounds_activations && Contains(name, "mixtral")) continue;
        const TinyOptions options = {
            .isa = isa, .weight_dtype = weight_dtype, .product_dtype = products};
        const double error = LargestError(name, options, rounded.folder());
        INFO(name << ", " << kernels::Name(isa) << ", products " << kernels::Name(products)
                  << ": relative error " << error);
        CHECK(error <= (rounds_activations ? 0.1 : 1e-4));
      }
    }
  }
}

}  // namespace

TEST_CASE("int8 weights: the same as a float32 model with these weights") {
  CheckRounded(DType::kI8);
}

TEST_CASE("bfloat16 weights: the same as a float32 model with these weights") {
  CheckRounded(DType::kBF16);
}

TEST_CASE("bfloat16 KV: near the float32 one") {
  for (const std::string& name : kModels) {
    for (Isa isa : Isas()) {
      const double error =
          LargestError(name, {.isa = isa, .kv_dtype = DType::kBF16}, GoldenFolder(name));
      INFO(name << ", " << kernels::Name(isa) << ": relative error " << error);
      CHECK(error <= 0.1);
    }
  }
}

}  // namespace tessera::worker
