// FP8 that workers keep as codes: planned at the bytes that they allocate.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cpu/device/cpu_device.h"
#include "proto/layers/layers.h"
#include "proto/model/model_tensors.h"
#include "scheduler/cost/cost_model.h"
#include "scheduler/shares.h"
#include "tests/temporary_folder.h"
#include "worker/model/model_dtypes.h"
#include "worker/weights/weights.h"

namespace tessera::worker {
namespace {

constexpr int64_t kHidden = 256, kKvWidth = 128, kFfn = 512, kVocabulary = 64;
constexpr int kLayers = 3;

// How scales of a matrix lie.
struct Scales {
  const char* name;
  const char* quantization;  // quantization_config
  std::vector<int64_t> (*shape)(int64_t rows, int64_t columns);
  bool kept;     // as codes
  int64_t unit;  // columns of the ffn that no two ranks have of
};

const Scales kAll[] = {
    {"blocks", R"({"quant_method": "fp8", "weight_block_size": [128, 128]})",
     [](int64_t rows, int64_t columns) {
       return std::vector{(rows + 127) / 128, columns / 128};
     },
     true, 128},
    {"outputs", R"({"quant_method": "compressed-tensors", "format": "float-quantized",
         "config_groups": {"a": {"targets": ["Linear"], "weights":
         {"num_bits": 8, "type": "float", "strategy": "channel"}}}})",
     [](int64_t rows, int64_t) {
       return std::vector<int64_t>{rows, 1};
     },
     true, 1},
    {"the whole", R"({"quant_method": "modelopt", "quant_algo": "FP8"})",
     [](int64_t, int64_t) { return std::vector<int64_t>{}; }, true, 1},
    // Groups that no kernel has: decoded.
    {"narrow blocks", R"({"quant_method": "fp8", "weight_block_size": [16, 16]})",
     [](int64_t rows, int64_t columns) {
       return std::vector{rows / 16, columns / 16};
     },
     false, 1}};

// A checkpoint whose codes and scales are zeros.
void WriteCheckpoint(const Scales& scales, const std::filesystem::path& folder) {
  nlohmann::json header = nlohmann::json::object();
  int64_t at = 0;
  const auto add = [&](const std::string& name, const char* dtype, int64_t bytes,
                       const std::vector<int64_t>& shape) {
    int64_t size = bytes;
    for (const int64_t n : shape) size *= n;
    header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {at, at + size}}};
    at += size;
  };
  for (const char* name : {"model.embed_tokens", "lm_head"}) {
    add(std::string(name) + ".weight", "BF16", 2, {kVocabulary, kHidden});
  }
  add("model.norm.weight", "BF16", 2, {kHidden});
  for (int i = 0; i < kLayers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      add(layer + norm + ".weight", "BF16", 2, {kHidden});
    }
    const std::tuple<const char*, int64_t, int64_t> matrices[] = {
        {"self_attn.q_proj", kHidden, kHidden},  {"self_attn.k_proj", kKvWidth, kHidden},
        {"self_attn.v_proj", kKvWidth, kHidden}, {"self_attn.o_proj", kHidden, kHidden},
        {"mlp.gate_proj", kFfn, kHidden},        {"mlp.up_proj", kFfn, kHidden},
        {"mlp.down_proj", kHidden, kFfn}};
    for (const auto& [name, rows, columns] : matrices) {
      add(layer + name + ".weight", "F8_E4M3", 1, {rows, columns});
      add(layer + name + ".weight_scale", "F32", 4, scales.shape(rows, columns));
    }
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::ofstream file(folder / "model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text << std::string(static_cast<size_t>(at), '\0');
  std::ofstream(folder / "config.json")
      << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16",
             "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 64, "intermediate_size": 512,
             "max_position_embeddings": 64, "quantization_config": )"
      << scales.quantization << "}";
}

TEST_CASE("FP8 is planned at the bytes that workers hold, whatever shares a scale") {
  auto device = kernels::CreateCpuDevice({.memory_bytes = int64_t{1} << 28, .cores_shared = true});
  REQUIRE(device.ok());
  for (const Scales& scales : kAll) {
    INFO("scales of " << scales.name);
    const tests::TemporaryFolder folder;
    WriteCheckpoint(scales, folder.path());
    const auto checked = ReadCheckedModel(folder.path().string());
    INFO(checked.status().ToString());
    REQUIRE(checked.ok());
    ModelOptions options;
    options.folder = folder.path();
    options.model = checked->model;
    const auto types =
        ResolveDTypes(options.model, v1::DATA_TYPE_UNSPECIFIED, v1::DATA_TYPE_UNSPECIFIED);
    REQUIRE(types.ok());
    options.weight_dtype = types->weight_dtype;
    const auto shape = scheduler::MakeModelShape(options.model);
    REQUIRE(shape.ok());
    CHECK(shape->ffn_unit == scales.unit);
    CHECK(CodeUnitInputs(options.model) == scales.unit);
    for (int width = 1; width <= 2; ++width) {
      // A layer alone: neither tables nor head.
      const auto shares =
          scheduler::StageShares(options.model, 1, 2, width, v1::DATA_TYPE_UNSPECIFIED);
      scheduler::StageSpec stage;
      stage.first_layer = 1;
      stage.layers = 1;
      const double planned =
          StageWeightBytes(*shape, stage, scheduler::FullestShare(*shape, width));
      for (const v1::WorkerShare& share : shares) {
        options.share = share;
        const auto weights = LoadWeights(options, **device, nullptr);
        INFO(weights.status().ToString());
        REQUIRE(weights.ok());
        const auto held = static_cast<double>((*weights)->memory.size_bytes());
        // Norms and the ends of allocations are not counted.
        CHECK(planned <= held * 1.01);
        CHECK(planned >= held * 0.97);
        CHECK(((*weights)->decoded.stored_bytes == 0) == scales.kept);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::worker
