#include "scheduler/planner/report/bound_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kRoundsToNothing = 5e-5;  // a gap that is written as 0.00 %
constexpr double kWideGap = 0.2;
constexpr char kLayouts[] =
    "layouts whose stages have one kind of device in one machine, with as many steps under way as "
    "stages, and whose replicas share no device";

}  // namespace

std::string BoundedLayouts() {
  return StrCat("this holds among ", kLayouts,
                " and are sent requests of every class and length in the same mix");
}

double GapOf(const BoundedPlacement& bounded) {
  const double bound = bounded.placement->upper_bound;
  return std::max(0.0, (bound - bounded.promised) / bound);
}

std::string BoundLine(const BoundedPlacement& bounded) {
  const PlacementProblem& problem = *bounded.problem;
  const Placement& placement = *bounded.placement;
  if (bounded.cheapest) {
    return absl::StrFormat(
        "proved optimum: nothing serves the asked %.3f requests/s for less than %.2f USD/h; %s",
        problem.required_requests_per_second, placement.usd_per_hour, BoundedLayouts());
  }
  if (placement.upper_bound <= 0) {
    return StrCat(
        "heuristic: no bound is proved, so how much ",
        problem.goal == Goal::kPrice ? "cheaper a plan could be" : "more a plan could serve",
        " is not known");
  }
  const double gap = GapOf(bounded);
  if (problem.goal == Goal::kGoodput) {
    const double tpot = problem.options.max_tpot_seconds;
    return absl::StrFormat(
        "heuristic, not proved to be the best: a better plan could serve %.3f requests/s within "
        "their limits %sat most: the gap is %.2f %%; this is the bound of the throughput with %s, "
        "which ignores TTFT and end to end, so part of the gap may come from the bound; %s",
        placement.upper_bound, bounded.survives ? "after the loss of a machine " : "", 100 * gap,
        std::isfinite(tpot) ? absl::StrFormat("TPOT <= %.1f ms", tpot * 1e3) : "any TPOT",
        BoundedLayouts());
  }
  const std::string wide =
      gap < kWideGap
          ? std::string()
          : StrCat("; the bound ",
                   bounded.survives ? "is that of the cluster without one machine, " : "",
                   "counts parts of devices and replicas, so it allows more than the best plan can "
                   "serve: a gap this wide says little about the plan");
  const char* after = bounded.survives ? " after the loss of a machine" : "";
  if (gap < kRoundsToNothing) {
    return absl::StrFormat(
        "proved optimum: nothing serves more than %.3f requests/s%s: the gap is %.2f %%; %s",
        placement.upper_bound, after, 100 * gap, BoundedLayouts());
  }
  return absl::StrFormat(
      "heuristic, not proved to be the best: a better plan could serve %.3f requests/s%s at most, "
      "%.3f more: the gap is %.2f %% of that%s; %s",
      placement.upper_bound, after, placement.upper_bound - bounded.promised, 100 * gap, wide,
      BoundedLayouts());
}

}  // namespace tessera::scheduler
