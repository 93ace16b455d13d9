// Every architecture and variant against Hugging Face transformers, on every kernel path that this
// machine has, and on the emulated CUDA device.
#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>

#include "kernels/cuda/emulation/runtime.h"
#include "tests/kernels/device_under_test.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/model/model_dtypes.h"

namespace tessera::worker {
namespace {

using kernels::DType;
using kernels::Isa;

// Largest error, relative to the largest logit, over prompt and steps with golden logits. Golden
// tokens are fed; `wrong_tokens` counts steps whose best token is another.
struct Outcome {
  double error = 0;
  int wrong_tokens = 0;
};

Outcome Replay(TinyModel& model, const GoldenRun& run, const std::vector<int32_t>& tokens) {
  Outcome outcome;
  const auto prompt_tokens = static_cast<int64_t>(run.prompt.size());
  const auto prompt = model.Run({{.tokens = run.prompt, .prompt_tokens = prompt_tokens}});
  for (size_t i = 0; i < prompt.size(); ++i) {
    outcome.error = std::max(outcome.error, RelativeError(prompt[i], run.prompt_logits[i]));
  }
  std::vector<float> last = prompt.back();
  for (size_t i = 0; i < tokens.size(); ++i) {
    outcome.wrong_tokens += Best(last) == tokens[i] ? 0 : 1;
    last = model.Run({{.tokens = {tokens[i]},
                       .first_position = prompt_tokens + static_cast<int64_t>(i),
                       .prompt_tokens = prompt_tokens}})[0];
    if (i >= run.step_logits.size()) continue;
    outcome.error = std::max(outcome.error, RelativeError(last, run.step_logits[i]));
  }
  return outcome;
}

std::vector<Isa> Isas() { return kernels::SupportedIsas(kernels::DetectCpuFeatures()); }

// Both runs. `path` is for errors.
void Check(const std::string& name, std::string_view path, const TinyOptions& options,
           double tolerance = 1e-4) {
  const std::vector<GoldenRun> runs = ReadGolden(name);
  TinyModel model(GoldenFolder(name), options);
  for (size_t i = 0; i < runs.size(); ++i) {
    // The emulator is slow.
    const Outcome outcome =
        Replay(model, runs[i], options.cuda ? runs[i].tokens : runs[i].long_tokens);
    INFO(name << ", prompt " << i << ", " << path << ": relative error " << outcome.error
              << ", other tokens " << outcome.wrong_tokens);
    CHECK(outcome.error <= tolerance);
    CHECK(outcome.wrong_tokens == 0);
  }
}

// Models with heads of 64 and 128, stored in the type that they are computed in.
struct HalfModel {
  const char* name;
  DType dtype;
  double tolerance;  // of logits under forced tokens, relative to a row's largest
};
constexpr double kBf16Tolerance = 0.03, kF16Tolerance = 0.005;
constexpr double kInt8Tolerance = 0.1;  // int8 weights against those that were stored
constexpr HalfModel kHalfModels[] = {{"llama_bf16_heads_64", DType::kBF16, kBf16Tolerance},
                                     {"qwen3_moe_bf16_heads_128", DType::kBF16, kBf16Tolerance},
                                     {"gpt_oss_bf16_heads_64", DType::kBF16, kBf16Tolerance},
                                     {"mistral_fp16_heads_128", DType::kF16, kF16Tolerance},
                                     {"mixtral_fp16_heads_64", DType::kF16, kF16Tolerance}};

// Weights, KV and products of 16 bits. Other tokens may look best where two are close.
void CheckHalf(const HalfModel& half, std::string_view path, TinyOptions options) {
  options.weight_dtype = options.kv_dtype = options.product_dtype = half.dtype;
  const std::vector<GoldenRun> runs = ReadGolden(half.name);
  TinyModel model(GoldenFolder(half.name), options);
  for (size_t i = 0; i < runs.size(); ++i) {
    const Outcome outcome = Replay(model, runs[i], runs[i].tokens);
    INFO(half.name << ", prompt " << i << ", " << path << ": relative error " << outcome.error);
    CHECK(outcome.error <= half.tolerance);
    CHECK(outcome.error > 0);  // it did round
  }
}

// On every path of the CPU.
void CheckAll(const std::string& name, TinyOptions options) {
  for (Isa isa : Isas()) {
    options.isa = isa;
    Check(name, kernels::Name(isa), options);
  }
}

}  // namespace

TEST_CASE("golden checkpoints cover every architecture, most of them for 32 tokens") {
  const std::vector<std::string> models = GoldenModels();
  CHECK(models.size() >= 24);
  const auto has_all = [](const std::string& name) {
    const std::vector<GoldenRun> runs = ReadGolden(name);
    return std::any_of(runs.begin(), runs.end(),
                       [](const GoldenRun& run) { return run.long_tokens.size() == 32; });
  };
  // Quantised ones and GGUF files whose oracle needs other packages have half as many.
  CHECK(std::count_if(models.begin(), models.end(), has_all) * 10 >= std::ssize(models) * 8);
}

TEST_CASE("float32: logits and tokens equal transformers'") {
  for (const std::string& name : GoldenModels()) CheckAll(name, {});
}

TEST_CASE("float32: a GGUF file gives what the folder gives") {
  const std::vector<std::string> names = GoldenGgufCopies();
  CHECK(names.size() >= 14);
  for (const std::string& name : names) CheckAll(name, {});
}

TEST_CASE("float32: blocks of other sizes give the same") {
  for (int64_t block_tokens : {1, 5, 32, 128}) {
    CheckAll("llama", {.block_tokens = block_tokens});
    CheckAll("mistral_window", {.block_tokens = block_tokens});
  }
}

TEST_CASE("float32 on the CUDA device: logits and tokens equal transformers'") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  kernels::cuda::emulated::Inject({.vary_schedules = true});
  for (const std::string& name : GoldenModels()) {
    Check(name, "CUDA", {.cuda = true, .block_tokens = 5});
  }
#endif
}

TEST_CASE("float16 on the CUDA device: a float16 checkpoint loses nothing, its KV little") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  TinyOptions options = {.cuda = true, .weight_dtype = DType::kF16};
  Check("llama_fp16_sharded", "CUDA", options);
  options.kv_dtype = DType::kF16;
  Check("llama_fp16_sharded", "CUDA", options, 1e-2);
#endif
}

TEST_CASE("16 bits: heads of 64 and 128 stay within the tolerance of transformers' logits") {
  for (const HalfModel& half : kHalfModels) {
    for (Isa isa : Isas()) {
      // CPUs compute float16 in float32, but for the reference.
      if (half.dtype == DType::kF16 && isa != Isa::kReference) continue;
      CheckHalf(half, kernels::Name(isa), {.isa = isa});
    }
  }
}

// Soft caps, norms of other places and kinds, multipliers: what the half models above do not have.
// Their heads are narrow and their attention is sharp, so that rounding moves logits further.
constexpr const char* kOtherParts[] = {"cohere",           "gemma2",   "gemma3",   "gemma4",
                                       "gemma4_per_layer", "granite",  "kimi_k25", "hunyuan_dense",
                                       "ministral3_fp8",   "nemotron", "olmo2"};
constexpr double kNarrowTolerance = 0.1;

void CheckOtherParts(std::string_view path, TinyOptions options, DType rounded) {
  options.kv_dtype = options.product_dtype = rounded;
  for (const char* name : kOtherParts) {
    const std::vector<GoldenRun> runs = ReadGolden(name);
    TinyModel model(GoldenFolder(name), options);
    for (const GoldenRun& run : runs) {
      const Outcome outcome = Replay(model, run, run.tokens);
      INFO(name << ", " << path << ": relative error " << outcome.error);
      CHECK(outcome.error <= kNarrowTolerance);
      CHECK(outcome.error > 0);
    }
  }
}

TEST_CASE("bfloat16 KV and products: parts of few families stay within their tolerance") {
  for (Isa isa : Isas()) CheckOtherParts(kernels::Name(isa), {.isa = isa}, DType::kBF16);
}

TEST_CASE("16-bit KV and products on the CUDA device: parts of few families") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  kernels::cuda::emulated::Inject({.vary_schedules = true});
  CheckOtherParts("CUDA", {.cuda = true}, DType::kBF16);
#endif
}

TEST_CASE("16 bits on the CUDA device: heads of 64 and 128 stay within the tolerance") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  using kernels::cuda::emulated::LaunchesFrom;
  kernels::cuda::emulated::Inject({.vary_schedules = true});
  for (const HalfModel& half : kHalfModels) {
    const int64_t gemv = LaunchesFrom("gemv.cu"), gemm = LaunchesFrom("gemm.cu");
    const int64_t plain = LaunchesFrom("matmul.cu");
    const int64_t prefill = LaunchesFrom("prefill.cu"), decode = LaunchesFrom("decode.cu");
    const int64_t plain_attention = LaunchesFrom("attention.cu");  // with KvWrite
    const int64_t prepared = LaunchesFrom("prepare_attention.cu");
    CheckHalf(half, "CUDA", {.cuda = true});
    if (kernels::cuda::DevicesUnderTest() == kernels::cuda::UnderTest::kGpu) continue;
    // Prompts on tensor cores, single tokens by GEMV; a router's weights are float32.
    CHECK(LaunchesFrom("gemm.cu") > gemm);
    CHECK(LaunchesFrom("gemv.cu") > gemv);
    CHECK(LaunchesFrom("prefill.cu") > prefill);
    CHECK(LaunchesFrom("decode.cu") > decode);
    CHECK(LaunchesFrom("attention.cu") == plain_attention);
    CHECK(LaunchesFrom("prepare_attention.cu") > prepared);
    bool routes = false;
    for (const char* part : {"moe", "mixtral", "gpt_oss"}) {
      routes |= std::string_view(half.name).find(part) != std::string_view::npos;
    }
    CHECK((LaunchesFrom("matmul.cu") > plain) == routes);
  }
#endif
}

TEST_CASE("int8 on the CUDA device: the same logits as the CPU's reference") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  kernels::cuda::emulated::Inject({.vary_schedules = true});
  const GoldenRun run = ReadGolden("llama_bf16_heads_64")[0];
  const Chunk chunk = {.tokens = run.prompt,
                       .prompt_tokens = static_cast<int64_t>(run.prompt.size())};
  TinyOptions options = {.weight_dtype = DType::kI8, .product_dtype = DType::kBF16};
  TinyModel reference(GoldenFolder("llama_bf16_heads_64"), options);
  options.cuda = true;
  TinyModel cuda(GoldenFolder("llama_bf16_heads_64"), options);
  const auto expected = reference.Run({chunk}), actual = cuda.Run({chunk});
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(RelativeError(actual[i], expected[i]) <= kBf16Tolerance);
  }
#endif
}

TEST_CASE("int8 on the CUDA device: no type of checkpoint gets the slow kernels for its prompts") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  using kernels::cuda::emulated::LaunchesFrom;
  const auto [name, stored] = GENERATE(
      table<const char*, v1::DataType>({{"llama_bf16_heads_64", v1::DATA_TYPE_BFLOAT16},
                                        {"llama_bf16_heads_64", v1::DATA_TYPE_FLOAT32},
                                        {"mistral_fp16_heads_128", v1::DATA_TYPE_FLOAT16}}));
  const bool bfloat16 = GENERATE(true, false);
  CAPTURE(name, v1::DataType_Name(stored), bfloat16);
  v1::Model model;
  model.set_dtype(stored);
  const auto types = ResolveDTypes(model, v1::DATA_TYPE_INT8, v1::DATA_TYPE_UNSPECIFIED,
                                   {.float16 = true, .bfloat16 = bfloat16});
  REQUIRE(types.ok());
  const GoldenRun run = ReadGolden(name)[0];
  REQUIRE(run.prompt.size() > 4);
  TinyModel tiny(GoldenFolder(name), {.cuda = true,
                                      .weight_dtype = types->weight_dtype,
                                      .kv_dtype = types->kv_dtype,
                                      .product_dtype = types->product_dtype});
  const int64_t gemv = LaunchesFrom("gemv.cu"), gemm = LaunchesFrom("gemm.cu");
  const int64_t plain = LaunchesFrom("matmul.cu"), attention = LaunchesFrom("attention.cu");
  const auto logits =
      tiny.Run({{.tokens = run.prompt, .prompt_tokens = static_cast<int64_t>(run.prompt.size())}});
  for (size_t i = 0; i < logits.size(); ++i) {
    CHECK(RelativeError(logits[i], run.prompt_logits[i]) <= kInt8Tolerance);
  }
  if (kernels::cuda::DevicesUnderTest() == kernels::cuda::UnderTest::kGpu) return;
  CHECK(LaunchesFrom("gemm.cu") > gemm);
  CHECK(LaunchesFrom("gemv.cu") == gemv);
  CHECK(LaunchesFrom("matmul.cu") == plain);
  CHECK(LaunchesFrom("attention.cu") == attention);
#endif
}

}  // namespace tessera::worker
