#include "scheduler/planner/report/shadow_prices.h"

#include <algorithm>
#include <map>

#include "scheduler/planner/report/idle_devices.h"

namespace tessera::scheduler {
namespace {

constexpr double kWorthless = 5e-4;  // requests per second

}  // namespace

std::vector<v1::DevicePrice> ShadowPrices(const PlacementProblem& problem,
                                          const Placement& placement, const std::string& search,
                                          bool survives) {
  std::vector<v1::DevicePrice> prices;
  if (placement.shadow_prices.empty()) {
    if (!survives) prices.emplace_back().set_unpriced_search(search.empty() ? "best" : search);
    return prices;
  }
  const bool budget = problem.goal == Goal::kBudget;
  const std::map<std::string, int> idle = IdleByKind(*problem.graph, placement);
  std::map<std::string, double> by_kind;
  for (size_t p = 0; p < placement.shadow_prices.size(); ++p) {
    double& most = by_kind[problem.graph->pools()[p].spec->kind];
    most = std::max(most, placement.shadow_prices[p]);
  }
  v1::DeviceEstimate worthless;
  // For a plan that survives, a device's machine matters; only existing ones were looked at.
  worthless.set_beside_others(survives);
  worthless.set_unit(survives ? v1::VALUE_UNIT_REQUESTS_AFTER_LOSS : v1::VALUE_UNIT_REQUESTS);
  for (const auto& [kind, price] : by_kind) {
    if (price < kWorthless) {
      worthless.add_kinds(kind);
      continue;
    }
    v1::DeviceEstimate& worth = *prices.emplace_back().mutable_estimate();
    worth.add_kinds(kind);
    worth.set_value(price);
    worth.set_unit(worthless.unit());
    worth.set_beside_others(survives);
    const auto unused = idle.find(kind);
    if (unused != idle.end() && !budget) worth.set_unused(unused->second);
  }
  worthless.set_budget_is_scarce(budget);
  if (!worthless.kinds().empty()) *prices.emplace_back().mutable_estimate() = worthless;
  return prices;
}

}  // namespace tessera::scheduler
