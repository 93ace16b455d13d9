// Setups that cannot be simulated.
#include <algorithm>

#include "scheduler/simulator/simulator.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {

absl::Status CheckSetup(const SimulationSetup& setup) {
  if (setup.replicas.empty()) return absl::InvalidArgumentError("there is no replica to simulate");
  for (const ReplicaSetup& replica : setup.replicas) {
    const BatchLimits& l = replica.limits;
    if (l.max_batched_tokens < 1 || l.max_sequences < 1 || l.max_logit_rows < 1 ||
        l.block_tokens < 1 || l.total_blocks < 1) {
      return absl::InvalidArgumentError(StrCat(
          "replica ", replica.name,
          ": each of its batch limits must be at least 1 (total_blocks is ", l.total_blocks, ")"));
    }
  }
  for (const SimulatedRequest& r : setup.requests) {
    if (r.prompt_tokens < 1 || r.output_tokens < 1) {
      return absl::InvalidArgumentError(
          "a request needs at least one prompt token and one output token");
    }
  }
  const bool sorted = std::is_sorted(
      setup.requests.begin(), setup.requests.end(),
      [](const auto& a, const auto& b) { return a.arrival_seconds < b.arrival_seconds; });
  return sorted ? absl::OkStatus()
                : absl::InvalidArgumentError("the requests must be ordered by arrival");
}

}  // namespace tessera::scheduler
