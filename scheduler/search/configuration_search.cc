#include "scheduler/search/configuration_search.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "scheduler/search/class_search.h"
#include "scheduler/search/few_devices_search.h"

namespace tessera::scheduler {
namespace {

constexpr double kGib = 1073741824.0;

absl::Status NothingFits(const PlacementProblem& problem) {
  const MemoryOptions& memory = problem.options.memory;
  const double longest = MomentsOf(problem.samples).max_sequence_tokens;
  double usable = 0;
  for (const DevicePool& pool : problem.graph->pools()) {
    usable += pool.count * std::max(0.0, pool.spec->memory_bytes * memory.utilisation -
                                             memory.runtime_reserve_bytes);
  }
  const double weights = TotalParameters(*problem.model) * problem.model->weight_bytes_per_element;
  const double kv = longest * KvBytesPerToken(*problem.model);
  if (weights + kv > usable) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s does not fit: weights %.2f GiB and KV of one sequence of %.0f tokens "
                        "%.2f GiB, all devices together "
                        "offer %.2f GiB: %.2f GiB are missing",
                        problem.model->name, weights / kGib, longest, kv / kGib, usable / kGib,
                        (weights + kv - usable) / kGib));
  }
  return absl::ResourceExhaustedError(
      absl::StrFormat("no layout of %s was found: all devices together offer %.2f GiB of the "
                      "%.2f needed, but no stages of them "
                      "hold the layers, or none keeps the time per output token",
                      problem.model->name, usable / kGib, (weights + kv) / kGib));
}

// Few devices whose proof ran out of tests: what the search by class finds may be better, and so
// may its bound.
absl::StatusOr<Placement> WithClasses(const PlacementProblem& problem,
                                      std::optional<Placement> known) {
  ClassSearchResult found = SearchByClass(problem);
  if (!found.placement)
    return known ? *std::move(known) : absl::StatusOr<Placement>(NothingFits(problem));
  if (!known) {
    found.placement->upper_bound = found.upper_bound;
    return *std::move(found.placement);
  }
  double bound = known->upper_bound;
  if (found.upper_bound > 0)
    bound = bound > 0 ? std::min(bound, found.upper_bound) : found.upper_bound;
  const bool better = problem.goal != Goal::kPrice &&
                      found.placement->requests_per_second > known->requests_per_second;
  Placement& best = better ? *found.placement : *known;
  best.upper_bound = bound > 0 ? std::max(bound, best.requests_per_second) : 0;
  best.interrupted = known->interrupted || found.placement->interrupted;
  return std::move(best);
}

}  // namespace

absl::StatusOr<Placement> SearchConfigurations(const PlacementProblem& problem) {
  if (!AreFewDevices(problem)) return WithClasses(problem, std::nullopt);
  FewDevicesResult few = SearchFewDevices(problem);
  if (few.proved) return *std::move(few.placement);
  if (few.fits && !few.placement && problem.goal == Goal::kPrice && !problem.watch.Stopped()) {
    return absl::ResourceExhaustedError("the required rate cannot be served by this cluster");
  }
  return WithClasses(problem, std::move(few.placement));
}

}  // namespace tessera::scheduler
