// Sums of the ranks of a stage, whose devices meet in memory that both map: here two of one
// process, on one GPU or on two.
//
// Thread rule and errors: op_rates.h.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tessera::bench {

// Seconds of one sum of `bytes` bytes of f32, of many that are enqueued behind each other as a
// graph.
absl::StatusOr<double> RankSumSeconds(kernels::Device& one, kernels::Device& other, int64_t bytes);

}  // namespace tessera::bench
