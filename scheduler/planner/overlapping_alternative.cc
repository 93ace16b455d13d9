#include "scheduler/planner/overlapping_alternative.h"

#include "absl/strings/str_format.h"
#include "scheduler/planner/report/plan_text.h"
#include "scheduler/search/baselines/overlapping_layers.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr int kFewDevices = 8;
// That are judged: each takes some programs, and a plan of many devices must not wait for them.
constexpr int kMostPlacements = 300, kMostPlacementsOfMany = 24;
constexpr size_t kMostNamed = 6;  // holders
constexpr double kShown = 5e-4;   // a gain that does not round to nothing

std::string HolderText(const PlacementProblem& problem, const LayerHolder& holder) {
  const DevicePool& pool = problem.graph->pools()[static_cast<size_t>(holder.pool)];
  return StrCat(holder.copies > 1 ? StrCat(holder.copies, " times ") : std::string(), holder.width,
                " ", pool.spec->kind, " of ",
                problem.graph->machines()[static_cast<size_t>(pool.machine)].name, " layers ",
                holder.first_layer, "-", holder.end() - 1);
}

}  // namespace

std::string OverlappingLine(const PlacementProblem& problem, const Placement& chosen) {
  if (problem.goal != Goal::kThroughput || MomentsOf(problem.samples).decode_steps <= 0) return "";
  constexpr const char* kName = "holders of overlapping layers, a route for each request: ";
  OverlappingOptions options;
  options.most_placements =
      problem.graph->devices() <= kFewDevices ? kMostPlacements : kMostPlacementsOfMany;
  const OverlappingSearch search = SearchOverlapping(problem, chosen, options);
  if (!search.best)
    return StrCat(kName, "none, no such placement was found (", search.placements, " tried)");
  const OverlappingPlacement& best = *search.best;
  const double gain = best.requests_per_second / chosen.requests_per_second - 1;
  std::string line = absl::StrFormat(
      "%s%.3f requests/s (%s), the best of %d tried placements (heuristic, no bound)", kName,
      best.requests_per_second, ChangeText(1 + gain, "as much"), search.placements);
  if (gain <= kShown) return line;  // often nearly the plan itself
  for (size_t h = 0; h < best.holders.size() && h < kMostNamed; ++h)
    line += StrCat(h == 0 ? ": " : ", ", HolderText(problem, best.holders[h]));
  if (best.holders.size() > kMostNamed)
    line += StrCat(" and ", best.holders.size() - kMostNamed, " holders more");
  if (!best.kept.empty())
    line += StrCat(", the other ", best.kept.size(),
                   best.kept.size() == 1 ? " replica" : " replicas", " as planned");
  return StrCat(line, "; it cannot be deployed yet: replicas of a plan share no device");
}

}  // namespace tessera::scheduler
