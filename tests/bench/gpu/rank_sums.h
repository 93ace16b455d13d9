// Sums of the ranks of a stage, whose devices meet in memory that both reach, their own or the
// host's: here two of one process, on one GPU or on two.
//
// Thread rule and errors: op_rates.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/collectives/device_sums.h"
#include "kernels/device.h"

namespace tessera::bench {

inline constexpr int kTwoRanks = 2;

// The sums of either rank: in the devices' own memory where they are peers, or in host memory
// though they are.
using SumsOfBoth = std::array<std::unique_ptr<kernels::DeviceSums>, kTwoRanks>;
absl::StatusOr<SumsOfBoth> MapSums(kernels::Device& one, kernels::Device& other, bool as_peers);

struct RankSum {
  double seconds = 0;
  std::string transport;
};

// One sum of `bytes` bytes of f32, of many that are enqueued behind each other as a graph.
absl::StatusOr<RankSum> MeasureRankSum(kernels::Device& one, kernels::Device& other, int64_t bytes,
                                       bool as_peers);

}  // namespace tessera::bench
