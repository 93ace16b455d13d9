// What Model::Load and Forward refuse, and which types are chosen.
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "kernels/cpu/device/cpu_device.h"
#include "proto/model/model_folder.h"
#include "tests/fakes/uniform_model.h"
#include "tests/temporary_folder.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/model/model_dtypes.h"
#include "worker/weights/safetensors.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using kernels::DType;

ModelOptions OptionsFor(const std::string& name) {
  const auto model = ReadModelFolder(GoldenFolder(name).string());
  REQUIRE(model.ok());
  return {
      .folder = GoldenFolder(name),
      .model = *model,
      .share = WholeShare(*model),
      .weight_dtype = DType::kF32,
      .kv_dtype = DType::kF32,
      .limits = {
          .max_tokens = 8, .max_sequences = 2, .max_logit_rows = 2, .max_blocks_per_sequence = 3}};
}

std::unique_ptr<kernels::Device> Device() {
  auto device = kernels::CreateCpuDevice({.memory_bytes = 1 << 26, .cores_shared = true});
  REQUIRE(device.ok());
  return *std::move(device);
}

absl::Status LoadStatus(const ModelOptions& options) {
  const auto device = Device();
  return Model::Load(options, *device, nullptr).status();
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

TEST_CASE("a stage loads alone, a rank's part runs only once its ranks have joined") {
  ModelOptions stage = OptionsFor("llama");
  stage.share.mutable_layers()->set_end(1);
  CHECK(LoadStatus(stage).ok());
  ModelOptions rank = OptionsFor("llama");
  tests::PartOf(rank.share).mutable_query_heads()->set_end(2);
  tests::PartOf(rank.share).mutable_kv_heads()->set_end(1);
  const auto device = Device();
  const auto model = Model::Load(rank, *device, nullptr);
  REQUIRE(model.ok());
  const auto stream = device->CreateStream();
  const absl::Status status = (*model)->Forward({}, **stream);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(Message(status), Contains("JoinRanks"));
}

TEST_CASE("types and limits that cannot be") {
  ModelOptions options = OptionsFor("llama");
  options.weight_dtype = DType::kI32;
  CHECK_THAT(Message(LoadStatus(options)), Contains("cannot be computed as int32"));
  options = OptionsFor("llama");
  options.kv_dtype = DType::kI32;
  CHECK_THAT(Message(LoadStatus(options)), Contains("KV cannot be kept as int32"));
  options = OptionsFor("llama");
  options.limits.max_tokens = 0;
  CHECK_THAT(Message(LoadStatus(options)), Contains("step limit"));
}

TEST_CASE("a tensor that is missing, or of another shape, is named") {
  ModelOptions options = OptionsFor("llama");
  options.model.mutable_layers(0)->set_count(3);
  options.share.mutable_layers()->set_end(3);
  CHECK_THAT(Message(LoadStatus(options)),
             Contains("tensor 'model.layers.2.input_layernorm.weight'"));
  options = OptionsFor("llama");
  tests::FfnOf(options.model).set_width(40);
  tests::PartOf(options.share).mutable_ffn_columns()->set_end(40);
  CHECK_THAT(Message(LoadStatus(options)),
             Contains("tensor 'model.layers.0.mlp.gate_proj.weight' has the shape [48, 32]"));
  options = OptionsFor("llama");
  tests::AttentionOf(options.model).set_qkv_bias(true);
  CHECK_THAT(Message(LoadStatus(options)), Contains("self_attn.q_proj.bias"));
  options = OptionsFor("llama");
  options.model.set_architecture("FalconForCausalLM");
  CHECK_THAT(Message(LoadStatus(options)), Contains("'FalconForCausalLM' is not supported"));
}

TEST_CASE("a checkpoint cut off is refused by name") {
  const tests::TemporaryFolder temporary;
  const fs::path& folder = temporary.path();
  fs::copy_file(GoldenFolder("llama") / "model.safetensors", folder / "model.safetensors");
  fs::resize_file(folder / "model.safetensors", 20000);
  ModelOptions options = OptionsFor("llama");
  options.folder = folder;
  CHECK_THAT(Message(LoadStatus(options)), Contains("model.safetensors: tensor '"));
}

TEST_CASE("tensors that are not aligned in their file are read all the same") {
  const tests::TemporaryFolder temporary;
  const fs::path& folder = temporary.path();
  std::ifstream in(GoldenFolder("llama") / "model.safetensors", std::ios::binary);
  std::string file{std::istreambuf_iterator<char>(in), {}};
  fs::copy_file(GoldenFolder("llama") / "config.json", folder / "config.json");
  // One more byte of header; a blank is still JSON.
  const auto header_bytes = static_cast<size_t>(static_cast<uint8_t>(file[0])) +
                            static_cast<size_t>(static_cast<uint8_t>(file[1])) * 256;
  file.insert(8 + header_bytes, 1, ' ');
  file[0] = static_cast<char>((header_bytes + 1) % 256);
  file[1] = static_cast<char>((header_bytes + 1) / 256);
  std::ofstream(folder / "model.safetensors", std::ios::binary) << file;

  const GoldenRun run = ReadGolden("llama")[1];
  const std::vector<Chunk> chunks = {
      {.tokens = run.prompt, .prompt_tokens = static_cast<int64_t>(run.prompt.size())}};
  TinyModel moved(folder, {}), straight(GoldenFolder("llama"), {});
  CHECK(moved.Run(chunks) == straight.Run(chunks));
}

TEST_CASE("steps above the limits, or before KV is there, are refused") {
  const auto device = Device();
  const auto loaded = Model::Load(OptionsFor("llama"), *device, nullptr);
  REQUIRE(loaded.ok());
  Model& model = **loaded;
  auto stream = device->CreateStream();
  REQUIRE(stream.ok());
  CHECK(model.Forward({}, **stream).code() == absl::StatusCode::kFailedPrecondition);
  CHECK_FALSE(model.AttachKv(nullptr, 1, 1).ok());
  auto kv = device->Allocate(4 * model.KvBlockBytes(16));
  REQUIRE(kv.ok());
  // 2 layers of keys and values, 2 kv heads of 8, f32.
  CHECK(model.KvBlockBytes(16) == 2 * 2 * 2 * 8 * 16 * 4);
  REQUIRE(model.AttachKv(kv->data(), 4, 16).ok());
  StepInputs step;
  step.token_ids = kernels::TensorView(kv->data(), DType::kI32, {9});
  CHECK_THAT(Message(model.Forward(step, **stream)), Contains("a step of 9 tokens"));
  step.token_ids.shape[0] = 1;
  step.logit_rows = kernels::TensorView(kv->data(), DType::kI32, {2});
  CHECK_THAT(Message(model.Forward(step, **stream)), Contains("1 tokens has no 2 rows"));
  CHECK(model.weight_bytes() > 80000);
  CHECK(model.activation_bytes() > 0);
}

TEST_CASE("types: what is asked for, what is stored, and why") {
  v1::Model model;
  const auto resolve = [&](v1::DataType stored, v1::DataType weights, v1::DataType kv) {
    model.set_dtype(stored);
    const auto chosen = ResolveDTypes(model, weights, kv);
    REQUIRE(chosen.ok());
    return *chosen;
  };
  constexpr auto kAuto = v1::DATA_TYPE_UNSPECIFIED;
  CHECK(resolve(v1::DATA_TYPE_BFLOAT16, kAuto, kAuto).weight_dtype == DType::kBF16);
  CHECK(resolve(v1::DATA_TYPE_BFLOAT16, kAuto, kAuto).kv_dtype == DType::kBF16);
  CHECK(resolve(v1::DATA_TYPE_FLOAT32, kAuto, kAuto).weight_dtype == DType::kF32);
  CHECK(resolve(kAuto, kAuto, kAuto).weight_dtype == DType::kF32);
  const ResolvedDTypes half = resolve(v1::DATA_TYPE_FLOAT16, kAuto, kAuto);
  CHECK(half.weight_dtype == DType::kF32);
  CHECK(half.kv_dtype == DType::kF32);
  CHECK_THAT(half.reason, Contains("stored as float16, asked for auto: computed as float32"));
  CHECK(resolve(v1::DATA_TYPE_FLOAT16, v1::DATA_TYPE_BFLOAT16, kAuto).weight_dtype == DType::kBF16);
  const ResolvedDTypes small = resolve(v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_INT8, kAuto);
  CHECK(small.weight_dtype == DType::kI8);
  CHECK(small.kv_dtype == DType::kBF16);
  CHECK(small.product_dtype == DType::kBF16);
  CHECK(resolve(v1::DATA_TYPE_BFLOAT16, kAuto, kAuto).product_dtype == DType::kBF16);
  CHECK(resolve(v1::DATA_TYPE_FLOAT32, kAuto, kAuto).product_dtype == DType::kF32);
  CHECK(resolve(v1::DATA_TYPE_FLOAT16, v1::DATA_TYPE_INT8, kAuto).product_dtype == DType::kF32);
  CHECK(resolve(v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_INT8, kAuto).kv_dtype == DType::kF32);
  CHECK(resolve(v1::DATA_TYPE_BFLOAT16, kAuto, v1::DATA_TYPE_FLOAT32).kv_dtype == DType::kF32);
  // A device that computes in float16, and one that computes in it alone.
  const auto on_gpu = [&](v1::DataType stored, v1::DataType weights, const HalfTypes& computed) {
    model.set_dtype(stored);
    const auto chosen = ResolveDTypes(model, weights, kAuto, computed);
    REQUIRE(chosen.ok());
    CHECK(chosen->product_dtype == chosen->kv_dtype);
    return std::pair(chosen->weight_dtype, chosen->kv_dtype);
  };
  const HalfTypes ampere = {true, true}, turing = {true, false};
  const std::pair f16(DType::kF16, DType::kF16), bf16(DType::kBF16, DType::kBF16);
  CHECK(on_gpu(v1::DATA_TYPE_FLOAT16, kAuto, ampere) == f16);
  CHECK(on_gpu(v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_FLOAT16, ampere) == f16);
  CHECK(on_gpu(v1::DATA_TYPE_BFLOAT16, kAuto, ampere) == bf16);
  CHECK(on_gpu(v1::DATA_TYPE_BFLOAT16, kAuto, turing) == f16);
  CHECK(on_gpu(v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_INT8, turing).second == DType::kF16);
  // Also int8 of what is not bfloat16: a GPU has fast kernels for 16 bits alone.
  const std::pair i8_f16(DType::kI8, DType::kF16), i8_bf16(DType::kI8, DType::kBF16);
  CHECK(on_gpu(v1::DATA_TYPE_FLOAT16, v1::DATA_TYPE_INT8, ampere) == i8_f16);
  CHECK(on_gpu(v1::DATA_TYPE_FLOAT16, v1::DATA_TYPE_INT8, turing) == i8_f16);
  CHECK(on_gpu(v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_INT8, ampere) == i8_bf16);
  CHECK(on_gpu(v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_INT8, turing) == i8_f16);
  CHECK(on_gpu(kAuto, v1::DATA_TYPE_INT8, ampere) == i8_bf16);
  CHECK(on_gpu(v1::DATA_TYPE_FLOAT16, v1::DATA_TYPE_BFLOAT16, turing).first == DType::kBF16);
  CHECK(on_gpu(v1::DATA_TYPE_FLOAT32, kAuto, turing).first == DType::kF32);
  CHECK(ResolveDTypes(model, kAuto, v1::DATA_TYPE_FLOAT16, ampere)->kv_dtype == DType::kF16);
  CHECK_THAT(Message(ResolveDTypes(model, kAuto, v1::DATA_TYPE_FLOAT16).status()),
             Contains("KV cannot be kept as float16 on this device"));
  // KV in 8 bits leaves products what they were.
  const ResolvedDTypes codes = resolve(v1::DATA_TYPE_BFLOAT16, kAuto, v1::DATA_TYPE_INT8);
  CHECK(codes.kv_dtype == DType::kI8);
  CHECK(codes.product_dtype == DType::kBF16);
  CHECK(resolve(v1::DATA_TYPE_FLOAT32, kAuto, v1::DATA_TYPE_FP8).kv_dtype == DType::kF8);
  CHECK_FALSE(ResolveDTypes(model, v1::DATA_TYPE_FP8, kAuto).ok());
}

}  // namespace tessera::worker
