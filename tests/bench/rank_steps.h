// Decode steps of a model whose layers two ranks share, each a thread of this process with a device
// of its own, or both with one GPU: their sums meet in memory that both map, their hosts gather the
// logits.
//
// Thread rule and errors: op_rates.h.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tessera::bench {

struct RankSteps {
  double seconds = 0;     // the median
  int64_t graphs = 0;     // of steps, that the rank with fewer of them has kept
  std::string transport;  // of the ranks' sums
};

// Steps of one sequence of `context` tokens, `steps` of which are timed. `folder`: of the model.
absl::StatusOr<RankSteps> MeasureRankSteps(kernels::Device& one, kernels::Device& other,
                                           const std::string& folder, int64_t context, int steps);

}  // namespace tessera::bench
