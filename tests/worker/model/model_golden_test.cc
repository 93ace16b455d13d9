// Every architecture and variant against Hugging Face transformers, on every kernel path that this
// machine has, and on the emulated CUDA device.
#include <catch2/catch.hpp>

#include "kernels/cuda/emulation/runtime.h"
#include "tests/worker/model/tiny_model.h"

namespace tessera::worker {
namespace {

using kernels::DType;
using kernels::Isa;

// Largest error, relative to the largest logit, over prompt and steps. Golden tokens are fed;
// `wrong_tokens` counts steps whose best token is another.
struct Outcome {
  double error = 0;
  int wrong_tokens = 0;
};

Outcome Replay(TinyModel& model, const GoldenRun& run) {
  Outcome outcome;
  const auto prompt_tokens = static_cast<int64_t>(run.prompt.size());
  const auto prompt = model.Run({{.tokens = run.prompt, .prompt_tokens = prompt_tokens}});
  for (size_t i = 0; i < prompt.size(); ++i) {
    outcome.error = std::max(outcome.error, RelativeError(prompt[i], run.prompt_logits[i]));
  }
  std::vector<float> last = prompt.back();
  for (size_t i = 0; i < run.tokens.size(); ++i) {
    outcome.wrong_tokens += Best(last) == run.tokens[i] ? 0 : 1;
    last = model.Run({{.tokens = {run.tokens[i]},
                       .first_position = prompt_tokens + static_cast<int64_t>(i),
                       .prompt_tokens = prompt_tokens}})[0];
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
    const Outcome outcome = Replay(model, runs[i]);
    INFO(name << ", prompt " << i << ", " << path << ": relative error " << outcome.error
              << ", other tokens " << outcome.wrong_tokens);
    CHECK(outcome.error <= tolerance);
    CHECK(outcome.wrong_tokens == 0);
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

TEST_CASE("golden checkpoints cover every architecture") { CHECK(GoldenModels().size() >= 17); }

TEST_CASE("float32: logits and tokens equal transformers'") {
  for (const std::string& name : GoldenModels()) CheckAll(name, {});
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

}  // namespace tessera::worker
