// The ops that decide how fast a model is, timed on a device with memory of its own.
//
// Units: bytes and floating-point operations (two per multiply-add) per second. Inputs are random
// numbers: products of zeros run at higher clocks. Thread rule: one thread, while nothing else runs
// on the device. Errors are the device's and the ops'.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace tessera::bench {

struct HeadShape {
  int64_t heads = 32, kv_heads = 8, head_dim = 128;
};

// A bf16 product of two square matrices.
absl::StatusOr<double> MultiplyRate(kernels::Device& device, int64_t size);
// Bytes of bf16 keys and values, read by one row for each of `batch` sequences.
absl::StatusOr<double> DecodeAttentionRate(kernels::Device& device, const HeadShape& shape,
                                           int64_t batch, int64_t context);
// Seconds of the same call, with keys and values in bf16, or in 8 bits: i8 or f8.
absl::StatusOr<double> DecodeAttentionSeconds(kernels::Device& device, const HeadShape& shape,
                                              int64_t batch, int64_t context,
                                              kernels::DType cache_type);
// Seconds of one call for the last `rows` of a sequence of `context` tokens.
absl::StatusOr<double> RowsAttentionSeconds(kernels::Device& device, const HeadShape& shape,
                                            int64_t rows, int64_t context);
// Causal operations of so many prompts in one step: half of those of all pairs.
absl::StatusOr<double> PrefillAttentionRate(kernels::Device& device, const HeadShape& shape,
                                            int64_t prompts, int64_t tokens);

// Seconds of a product of so many f32 rows, which tensor cores may multiply as bf16, for each of
// `rows`. Weights are random; each call meets another matrix, where caches might hold them.
absl::StatusOr<std::vector<double>> LinearSeconds(kernels::Device& device,
                                                  const kernels::LinearSpec& spec,
                                                  std::span<const int64_t> rows);

struct RouterShape {
  int64_t experts = 128, used = 8;  // by a row
};
// Seconds of one call of MoeRoute for so many rows.
absl::StatusOr<double> RouteSeconds(kernels::Device& device, const RouterShape& shape,
                                    int64_t rows);

struct ExpertShape {
  RouterShape router;
  int64_t hidden = 2048, ffn = 768;
};
// Seconds of the experts of a layer for so many rows: routing, the product with gate and up, SiLU,
// the product with down, and the sum of a row's experts. `weights`: bf16 or i4 (in groups of 128),
// or i8, as MXFP4 (in groups of 32).
absl::StatusOr<double> ExpertSeconds(kernels::Device& device, const ExpertShape& shape,
                                     kernels::DType weights, int64_t rows);

struct SampleCase {
  int64_t rows = 1, vocabulary = 0;
  float temperature = 0;  // 0: greedy
  float top_p = 1;        // 1: off
  int32_t top_k = 0;      // 0: off
  bool flat = false;      // logits that are all likely; else the nth likeliest as n^-1.2
};
// Seconds of one call of Sample.
absl::StatusOr<double> SampleSeconds(kernels::Device& device, const SampleCase& sample);

}  // namespace tessera::bench
