#include "scheduler/search/best/configuration_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "scheduler/search/best/class_search.h"
#include "scheduler/search/best/few_devices_search.h"
#include "scheduler/search/best/rental_search.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

Placement Bounded(Placement placement, double bound) {
  placement.upper_bound = BoundOver(bound, placement.requests_per_second);
  if (bound > 0 && placement.upper_bound <= 0) {
    placement.proved = false;
    v1::BoundError& error = *placement.notes.emplace_back().mutable_bound_error();
    error.set_bound(bound);
    error.set_requests_per_second(placement.requests_per_second);
  }
  return placement;
}

absl::Status NothingFits(const PlacementProblem& problem) {
  if (absl::Status room = CheckRoom(problem); !room.ok()) return room;
  const bool limited = std::isfinite(problem.options.max_tpot_seconds);
  return absl::ResourceExhaustedError(StrCat(
      "no layout of ", problem.model->name,
      " was found: all devices together just have room for its weights and one sequence, but "
      "layers are whole and every device needs room for its steps, and no stages hold them all",
      limited ? ", or none keeps the time per output token" : "",
      "; use more of the memory (--utilisation), smaller steps (--max-batched-tokens), fewer bits "
      "per weight (--dtype int8) or more devices"));
}

ClassSearchResult SearchMany(const PlacementProblem& problem) {
  const bool money = problem.goal == Goal::kPrice || problem.goal == Goal::kBudget;
  if (!money || !problem.graph->rents_whole_machines()) return SearchByClass(problem);
  return SearchRentals(
      problem, [](const PlacementProblem& part) { return SearchConfigurations(part, nullptr); });
}

// Few devices whose proof ran out of tests: what the search by class finds may be better, and so
// may its bound.
absl::StatusOr<Placement> WithClasses(const PlacementProblem& problem,
                                      std::optional<Placement> known) {
  ClassSearchResult found = SearchMany(problem);
  if (!found.placement && !known) return NothingFits(problem);
  if (!known) return Bounded(*std::move(found.placement), found.upper_bound);
  double bound = known->upper_bound;
  if (!found.placement) return Bounded(*std::move(known), bound);
  if (found.upper_bound > 0)
    bound = bound > 0 ? std::min(bound, found.upper_bound) : found.upper_bound;
  const double need = problem.required_requests_per_second * (1 - 1e-6);
  const auto serves = [&](const Placement& p) { return p.requests_per_second >= need; };
  const bool better =
      problem.goal == Goal::kPrice
          ? serves(*found.placement) &&
                (!serves(*known) || found.placement->usd_per_hour < known->usd_per_hour)
          : found.placement->requests_per_second > known->requests_per_second;
  Placement& best = better ? *found.placement : *known;
  best.interrupted = known->interrupted || found.placement->interrupted;
  return Bounded(std::move(best), bound);
}

}  // namespace

absl::StatusOr<Placement> SearchConfigurations(const PlacementProblem& problem,
                                               KnownLayouts* known) {
  // Where prices depend on how many machines are rented, a set of devices has none of its own.
  const bool money = problem.goal == Goal::kPrice || problem.goal == Goal::kBudget;
  const bool priced_together = money && !problem.graph->prices_together().empty();
  if (priced_together || !AreFewDevices(problem)) return WithClasses(problem, std::nullopt);
  FewDevicesResult few = SearchFewDevices(problem, known);
  if (few.settled && few.placement) {
    const double bound = few.placement->upper_bound;
    return Bounded(*std::move(few.placement), bound);
  }
  if (few.settled && few.fits && problem.goal == Goal::kPrice) {
    return absl::ResourceExhaustedError("the required rate cannot be served by this cluster");
  }
  if (few.settled) return NothingFits(problem);
  return WithClasses(problem, std::move(few.placement));
}

}  // namespace tessera::scheduler
