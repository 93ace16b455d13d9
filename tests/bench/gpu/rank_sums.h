// Sums of the ranks of a stage, whose devices meet in memory that both map: here two of one
// process, on one GPU or on two.
//
// Thread rule and errors: op_rates.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tessera::bench {

// The memory in which two ranks meet, as each of them maps it.
absl::StatusOr<std::vector<std::shared_ptr<std::byte>>> MemoryForSums(kernels::Device& one,
                                                                      kernels::Device& other);

// Seconds of one sum of `bytes` bytes of f32, of many that are enqueued behind each other as a
// graph.
absl::StatusOr<double> RankSumSeconds(kernels::Device& one, kernels::Device& other, int64_t bytes);

}  // namespace tessera::bench
