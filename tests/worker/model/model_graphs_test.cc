// Steps of single tokens on the emulated GPU: from the third of the same extents on they are one
// graph, and give the bits that launches one by one gave.
#include <catch2/catch.hpp>
#include <vector>

#include "kernels/cuda/emulation/runtime.h"
#include "tests/worker/model/tiny_model.h"

namespace tessera::worker {
namespace {

using kernels::DType;
using kernels::cuda::emulated::GraphsLaunched;

// Three sequences, of which each gets a token a step.
std::vector<std::vector<float>> Decode(const std::string& name, DType type, int steps) {
  TinyModel model(GoldenFolder(name),
                  {.cuda = true, .weight_dtype = type, .kv_dtype = type, .product_dtype = type});
  std::vector<Chunk> chunks;
  for (int s = 0; s < 3; ++s) {
    std::vector<int32_t> prompt;
    for (int i = 0; i < 5 + 3 * s; ++i) prompt.push_back(4 + (7 * i + s) % 90);
    chunks.push_back({.sequence = s, .tokens = prompt, .prompt_tokens = 5 + 3 * s});
  }
  std::vector<std::vector<float>> logits = model.Run(chunks);
  for (int step = 0; step < steps; ++step) {
    for (Chunk& chunk : chunks) {
      chunk.first_position += static_cast<int64_t>(chunk.tokens.size());
      chunk.tokens = {4 + (step * 11 + chunk.sequence) % 90};
    }
    for (auto& row : model.Run(chunks)) logits.push_back(std::move(row));
  }
  return logits;
}

TEST_CASE("steps of single tokens become a graph, with the same bits") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  const auto [name, type] =
      GENERATE(table<const char*, DType>({{"llama", DType::kF32},
                                          {"llama_bf16_heads_64", DType::kBF16},
                                          {"mixtral_fp16_heads_64", DType::kF16}}));
  CAPTURE(name);
  constexpr int kSteps = 8;
  kernels::cuda::emulated::Inject({.captures_fail = true, .vary_schedules = true});
  const int64_t before = GraphsLaunched();
  const auto eager = Decode(name, type, kSteps);
  CHECK(GraphsLaunched() == before);
  kernels::cuda::emulated::Inject({.vary_schedules = true});
  const auto graphs = Decode(name, type, kSteps);
  // All steps but the first; the prompts' step is none.
  CHECK(GraphsLaunched() == before + kSteps - 1);
  CHECK(graphs == eager);
#endif
}

}  // namespace
}  // namespace tessera::worker
