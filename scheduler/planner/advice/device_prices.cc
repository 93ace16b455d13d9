#include "scheduler/planner/advice/device_prices.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "scheduler/input/cluster_graph.h"
#include "scheduler/planner/advice/device_places.h"
#include "scheduler/planner/advice/what_if.h"
#include "scheduler/planner/planner.h"

namespace tessera::scheduler {
namespace {

constexpr double kWorthSaying = 1e-4;  // of the value

std::map<std::string, int> UsedByKind(const v1::DeploymentPlan& plan) {
  std::map<std::string, int> used;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) ++used[worker.kind()];
    }
  }
  return used;
}

// Devices that are idle now and are used then, beside one more of `kind`.
std::vector<v1::KindCount> WokenBy(const v1::DeploymentPlan& now, const v1::DeploymentPlan& then,
                                   const std::string& kind) {
  std::map<std::string, int> used = UsedByKind(now);
  ++used[kind];  // the new one
  std::vector<v1::KindCount> woken;
  for (const auto& [other, count] : UsedByKind(then)) {
    const int more = count - used[other];
    if (more <= 0) continue;
    woken.emplace_back().set_kind(other);
    woken.back().set_devices(more);
  }
  return woken;
}

class Pricer {
 public:
  Pricer(const PlannerInput& input, const PlannerOptions& options, const DevicePriceOptions& prices,
         v1::DeploymentPlan* plan)
      : input_(input), options_(options), left_(prices.most_searches), plan_(*plan) {
    options_.simulate = false;
  }

  void Run() {
    const std::set<std::string> kinds = KindsOf(input_.cluster);
    const int estimates = plan_.device_prices_size();
    FindBase();
    int untried = 0;
    for (const std::string& kind : kinds) {
      if (left_ <= 0 || options_.watch.Stopped() || !Price(kind)) ++untried;
    }
    // What was planned again beats the estimate, which may say something else.
    if (untried == 0) plan_.mutable_device_prices()->DeleteSubrange(0, estimates);
    if (untried > 0) plan_.add_device_prices()->mutable_untried()->set_kinds(untried);
  }

 private:
  // The plan that those with one more device are held against: where the simulation chose, maybe
  // another one than the plan.
  void FindBase() {
    base_ = plan_;
    if (!plan_.has_simulated() || options_.watch.Stopped()) return;
    absl::StatusOr<v1::DeploymentPlan> predicted = MakePlan(input_, options_);
    if (!predicted.ok() || options_.watch.Stopped()) return;
    base_ = *std::move(predicted);
    const double base = base_.certificate().value(), now = plan_.certificate().value();
    if (std::abs(base - now) <= kWorthSaying * now) return;
    v1::PriceBase& counted_from = *plan_.add_device_prices()->mutable_base();
    counted_from.set_value(base);
    counted_from.set_unit(GainUnit());
  }

  v1::ValueUnit GainUnit() const {
    return options_.goal == Goal::kPrice ? v1::VALUE_UNIT_USD_PER_HOUR : PromisedUnit(plan_);
  }

  struct Gained {
    double more = 0;                   // in the unit of the objective
    std::vector<v1::KindCount> woken;  // devices that it sets to work
  };

  // Empty: no plan.
  std::optional<Gained> Gain(const std::string& kind, const DevicePlace& place) {
    --left_;
    PlannerInput more = input_;
    if (!ApplyChanges(place.change, &more.cluster).ok()) return std::nullopt;
    const absl::StatusOr<v1::DeploymentPlan> with = MakePlan(more, options_);
    if (!with.ok()) return std::nullopt;
    // Where devices are rented those that nobody uses are not idle.
    if (options_.goal == Goal::kPrice)
      return Gained{base_.certificate().value() - with->certificate().value(), {}};
    return Gained{PromisedRate(*with) - PromisedRate(base_),
                  options_.goal == Goal::kBudget ? std::vector<v1::KindCount>()
                                                 : WokenBy(base_, *with, NameOf(kind))};
  }

  // As plans call it.
  std::string NameOf(const std::string& kind) const {
    const auto described = DescribedKind(input_.cluster, input_.catalogue, kind);
    return described ? described->name() : kind;
  }

  // False where nothing was tried: searches that are interrupted tell too little.
  bool Price(const std::string& kind) {
    v1::DeviceGain best;
    int tried = 0;
    const std::vector<DevicePlace> places = PlacesFor(kind, input_.cluster);
    for (const DevicePlace& place : places) {
      if (left_ <= 0 || options_.watch.Stopped()) break;
      const std::optional<Gained> gain = Gain(kind, place);
      if (options_.watch.Stopped()) break;
      ++tried;
      if (!gain || gain->more <= best.value()) continue;
      best.set_value(gain->more);
      *best.mutable_place() = place.fact;
      best.mutable_woken()->Assign(gain->woken.begin(), gain->woken.end());
    }
    if (tried == 0 && !places.empty()) return false;
    if (best.value() <= kWorthSaying * base_.certificate().value()) best.Clear();
    best.set_kind(kind);
    best.set_unit(GainUnit());
    best.set_tried(tried);
    best.set_places(static_cast<int>(places.size()));
    *plan_.add_device_prices()->mutable_gain() = std::move(best);
    return true;
  }

  const PlannerInput& input_;
  PlannerOptions options_;  // without simulation
  int left_;
  v1::DeploymentPlan& plan_;
  v1::DeploymentPlan base_;
};

}  // namespace

double PromisedRate(const v1::DeploymentPlan& plan) {
  return plan.has_survival() ? plan.survival().requests_per_second()
                             : plan.prediction().requests_per_second();
}

v1::ValueUnit PromisedUnit(const v1::DeploymentPlan& plan) {
  return plan.has_survival() ? v1::VALUE_UNIT_REQUESTS_AFTER_LOSS : v1::VALUE_UNIT_REQUESTS;
}

void AddDevicePrices(const PlannerInput& input, const PlannerOptions& options,
                     const DevicePriceOptions& prices, v1::DeploymentPlan* plan) {
  if (options.given_search || DevicesOf(input.cluster) >= prices.most_devices) return;
  Pricer(input, options, prices, plan).Run();
}

}  // namespace tessera::scheduler
