// The sizes that gpu_bench measures with: those of a GPU, and small ones for the emulated one.
// Thread rule: constants. Bytes, rows, tokens, seconds.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/bench/gpu/op_rates.h"

namespace tessera::bench {

struct LinearShape {
  int64_t depth = 0, columns = 0;
};

struct Sizes {
  int64_t copy_bytes = 0, matrix = 0;
  int64_t decode_batch = 0, attention_context = 0;
  HeadShape heads;
  struct Attended {
    int64_t sequences = 0, context = 0;
  };
  std::vector<Attended> more_decodes, more_prompts;  // without bars
  std::vector<int64_t> last_rows;                    // of a sequence of so many tokens
  int64_t long_context = 0;
  HeadShape latents;  // of which the same rows are attended, of a shorter context
  int64_t latent_context = 0;
  std::vector<LinearShape> linears;
  std::vector<int64_t> linear_rows;
  RouterShape router;
  std::vector<std::pair<int64_t, double>> routed;  // rows, and the seconds that are the goal
  ExpertShape experts;
  std::vector<int64_t> expert_rows;
  int64_t vocabulary = 0;                        // that is sampled from
  std::vector<std::pair<int64_t, double>> sums;  // bytes, and the seconds that are the goal
  std::vector<int64_t> batches;                  // of the step; the last is that of the streams
  int64_t context = 0;                           // of the step, and of the prompts
  int64_t output_tokens = 0;
  int steps = 0;  // that are timed
};

inline const Sizes kGpuSizes = {.copy_bytes = int64_t{2} << 30,
                                .matrix = 8192,
                                .decode_batch = 8,
                                .attention_context = 4096,
                                .heads = {32, 8, 128},
                                .more_decodes = {{64, 1024}, {1, 32768}},
                                .more_prompts = {{4, 1024}},
                                .last_rows = {1, 4, 8, 64},
                                .long_context = 32768,
                                .latents = {128, 1, 576},
                                .latent_context = 8192,
                                .linears = {{4096, 28672}, {14336, 4096}},
                                .linear_rows = {1, 4, 8, 16, 64, 512, 4096},
                                .router = {128, 8},
                                .routed = {{1, 8e-6}, {64, 8e-6}, {2048, 30e-6}},
                                .experts = {{128, 8}, 2048, 768},
                                .expert_rows = {1, 16, 64, 2048},
                                .vocabulary = 128256,
                                .sums = {{16 << 10, 12e-6}, {256 << 10, 0}},
                                .batches = {1, 16, 64},
                                .context = 1024,
                                .output_tokens = 256,
                                .steps = 30};
inline const Sizes kEmulatedSizes = {.copy_bytes = 1 << 20,
                                     .matrix = 128,
                                     .decode_batch = 2,
                                     .attention_context = 192,
                                     .heads = {4, 2, 64},
                                     .more_decodes = {{3, 80}},
                                     .more_prompts = {{2, 80}},
                                     .last_rows = {1, 3, 9},
                                     .long_context = 300,
                                     .latents = {4, 1, 576},
                                     .latent_context = 40,
                                     .linears = {{1024, 96}},
                                     .linear_rows = {1, 9},
                                     .router = {8, 2},
                                     .routed = {{1, 8e-6}, {9, 8e-6}},
                                     .experts = {{8, 2}, 128, 64},
                                     .expert_rows = {1, 33},
                                     .vocabulary = 3000,
                                     .sums = {{16 << 10, 12e-6}},
                                     .batches = {1, 2},
                                     .context = 64,
                                     .output_tokens = 8,
                                     .steps = 3};

}  // namespace tessera::bench
