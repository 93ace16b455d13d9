#include "scheduler/planner/report/shadow_prices.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/planner/report/idle_devices.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kWorthless = 5e-4;  // requests per second

}  // namespace

std::vector<std::string> ShadowPriceLines(const PlacementProblem& problem,
                                          const Placement& placement, const std::string& search,
                                          bool survives) {
  if (placement.shadow_prices.empty()) {
    if (survives) return {};
    return {
        StrCat("not known: the search ", search.empty() ? "best" : search,
               " does not price devices; --sensitivity plans again with one more of each kind")};
  }
  const bool budget = problem.goal == Goal::kBudget;
  const std::map<std::string, int> idle = IdleByKind(*problem.graph, placement);
  std::map<std::string, double> by_kind;
  for (size_t p = 0; p < placement.shadow_prices.size(); ++p) {
    double& most = by_kind[problem.graph->pools()[p].spec->kind];
    most = std::max(most, placement.shadow_prices[p]);
  }
  // For a plan that survives, a device's machine matters; only existing ones were looked at.
  const char* where = survives ? " in a machine that has some" : "";
  std::vector<std::string> lines, worthless;
  for (const auto& [kind, price] : by_kind) {
    if (price < kWorthless) {
      worthless.push_back(kind);
      continue;
    }
    const auto unused = idle.find(kind);
    lines.push_back(absl::StrFormat(
        "one more %s%s is worth %.3f requests/s%s%s (estimate: shadow price, "
        "at the margin, with parts of devices)",
        kind, where, price, survives ? " after the loss of a machine" : "",
        unused == idle.end() || budget
            ? ""
            : StrCat(", if it finds a place that the ", unused->second,
                     unused->second == 1 ? " that is" : " that are", " not used did not find")));
  }
  if (worthless.empty()) return lines;
  lines.push_back(StrCat("one more ", absl::StrJoin(worthless, ", "), where, " would bring nothing",
                         budget ? ": the budget is what is scarce" : "",
                         " (estimate: shadow price, at the margin, with parts of devices)"));
  return lines;
}

}  // namespace tessera::scheduler
