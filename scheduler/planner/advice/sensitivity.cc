#include "scheduler/planner/advice/sensitivity.h"

#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/str_format.h"
#include "scheduler/planner/advice/assumption_changes.h"
#include "scheduler/planner/advice/device_places.h"
#include "scheduler/planner/advice/device_prices.h"
#include "scheduler/planner/advice/link_prices.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/plan_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kServesAsked = 1 - 1e-6;

class Study {
 public:
  Study(const PlannerInput& input, const PlannerOptions& options, v1::DeploymentPlan* plan)
      : input_(input), options_(options), plan_(*plan) {
    judging_ = JudgingOf(options, *plan);
    now_ = PromisedRate(*plan);
  }

  void Changes(bool search_again) {
    if (options_.goal == Goal::kPrice) {
      plan_.add_sensitivity(
          "the figures are the requests/s that this layout can serve; its price stays the same");
    }
    first_ = plan_.sensitivity_size();
    for (const AssumptionChange& change : AssumptionChanges()) {
      if (options_.watch.Stopped()) return;
      PlannerInput changed = input_;
      change.apply(&changed);
      const absl::StatusOr<v1::DeploymentPlan> kept = MakePlan(changed, judging_);
      std::string line = StrCat(change.name, ": ");
      const double value = kept.ok() ? PromisedRate(*kept) : 0;
      line += kept.ok() ? Against(value)
                        : StrCat("this layout does not work: ", WhyNotKept(kept.status()));
      values_.push_back(value);
      plan_.add_sensitivity(std::move(line));
    }
    if (!search_again)
      plan_.add_sensitivity(
          "whether another layout would be chosen then is unknown: --sensitivity searches again");
  }

  // Behind each change: whether another layout would then be chosen.
  void Choices() {
    for (size_t i = 0; i < values_.size(); ++i) {
      if (options_.watch.Stopped()) return;
      PlannerInput changed = input_;
      AssumptionChanges()[i].apply(&changed);
      *plan_.mutable_sensitivity(first_ + static_cast<int>(i)) += Choice(changed, values_[i]);
    }
  }

  void Links(bool search_again) { AddLinkPrices(input_, judging_, options_, search_again, &plan_); }

  // What the other choices would have been worth, and what limits them.
  void Alternatives() {
    const std::set<std::string> kinds = KindsOf(input_.cluster);
    const bool split = std::any_of(
        plan_.replicas().begin(), plan_.replicas().end(),
        [](const v1::Replica& replica) { return replica.role() != v1::REPLICA_ROLE_BOTH; });
    if (split) {
      PlannerOptions whole = options_;
      whole.allow_split = false;
      Alternative("every replica prefills and decodes", input_, whole);
    }
    if (kinds.size() < 2) return;
    for (const bool only : {true, false}) {
      for (const std::string& kind : kinds) {
        if (options_.watch.Stopped()) return;
        PlannerInput some = input_;
        Keep(&some.cluster, [&](const std::string& k) { return (k == kind) == only; });
        Alternative(StrCat(only ? "only " : "without ", kind), some, options_);
      }
    }
  }

 private:
  std::string Against(double value) const {
    return absl::StrFormat("%.3f %s (%s)", value, PromisedUnit(plan_), ChangeText(value / now_));
  }

  std::string Choice(const PlannerInput& changed, double value) const {
    const absl::StatusOr<v1::DeploymentPlan> best = MakePlan(changed, options_);
    if (options_.watch.Stopped()) return "; interrupted before the search for another layout";
    if (!best.ok()) return "; no other layout works either";
    if (options_.goal == Goal::kPrice) return CheapestChoice(*best, value);
    const double reach = PromisedRate(*best);
    if (reach <= value * kOtherChoice) return "; the choice stays";
    return absl::StrFormat("; another layout would be chosen, for %.3f %s", reach,
                           PromisedUnit(plan_));
  }

  // The layout's price stays, as long as it still serves what was asked: `value` requests/s.
  std::string CheapestChoice(const v1::DeploymentPlan& best, double value) const {
    const double own_usd = plan_.certificate().value(), usd = best.certificate().value();
    const bool serves = value >= input_.workload.requests_per_second() * kServesAsked;
    if (serves && usd * kOtherChoice >= own_usd) return "; the choice stays";
    return absl::StrFormat("; another layout would be chosen, for %.2f instead of %.2f USD/h%s",
                           usd, own_usd,
                           serves ? "" : ", because this layout no longer serves the asked rate");
  }

  static void Keep(v1::Cluster* cluster, const std::function<bool(const std::string&)>& wanted) {
    std::set<std::string> places;
    auto* machines = cluster->mutable_machines();
    for (int m = machines->size() - 1; m >= 0; --m) {
      auto* groups = machines->Mutable(m)->mutable_devices();
      for (int g = groups->size() - 1; g >= 0; --g) {
        if (!wanted(groups->Get(g).kind())) groups->DeleteSubrange(g, 1);
      }
      if (groups->empty()) {
        machines->DeleteSubrange(m, 1);
      } else {
        places.insert(machines->Get(m).name());
        places.insert(machines->Get(m).site());
      }
    }
    auto* links = cluster->mutable_links();
    for (int i = links->size() - 1; i >= 0; --i) {
      if (!places.contains(links->Get(i).from()) || !places.contains(links->Get(i).to()))
        links->DeleteSubrange(i, 1);
    }
    auto* sites = cluster->mutable_sites();
    for (int i = sites->size() - 1; i >= 0; --i) {
      if (!places.contains(sites->Get(i).name())) sites->DeleteSubrange(i, 1);
    }
  }

  void Alternative(const std::string& name, const PlannerInput& input,
                   const PlannerOptions& options) {
    if (options_.watch.Stopped()) return;
    const absl::StatusOr<v1::DeploymentPlan> plan = MakePlan(input, options);
    if (options_.watch.Stopped()) return;  // within the search
    if (!plan.ok()) {
      plan_.add_alternatives(StrCat(name, ": none, ", FirstLine(StdView(plan.status().message()))));
      return;
    }
    const double value = PromisedRate(*plan);
    const std::string& bottleneck = plan->certificate().bottleneck();
    plan_.add_alternatives(StrCat(name, ": ", Against(value), " on ", plan->replicas_size(),
                                  plan->replicas_size() == 1 ? " replica; " : " replicas; ",
                                  bottleneck.substr(0, bottleneck.find(';'))));
  }

  const PlannerInput& input_;
  const PlannerOptions& options_;
  PlannerOptions judging_;  // the plan's layout, no search
  v1::DeploymentPlan& plan_;
  double now_ = 0;
  int first_ = 0;               // line of the first change
  std::vector<double> values_;  // of the layout, by change
};

}  // namespace

void AddSensitivity(const PlannerInput& input, const PlannerOptions& options, bool search_again,
                    v1::DeploymentPlan* plan) {
  if (PromisedRate(*plan) <= 0) return;
  // Plans that must survive take many searches each.
  const bool quick = DevicesOf(input.cluster) <= kReplannedUpTo && !options.survive_machine_loss;
  PlannerOptions reporting = options;
  reporting.attain_requests = 0;
  reporting.watch.progress = [&](const std::string& what) {
    options.watch.Report(StrCat("what changes would bring: ", what));
  };
  // What takes no search comes first: who interrupts the rest has it.
  Study study(input, reporting, plan);
  study.Changes(search_again || quick);
  study.Links(search_again);
  if (search_again || quick) AddDevicePrices(input, reporting, {}, plan);
  if (search_again || quick) study.Choices();
  if (search_again) study.Alternatives();
  if (reporting.watch.Stopped()) {
    plan->add_sensitivity(
        "interrupted: other layouts, devices and bandwidth that are not listed were not tried");
  }
}

}  // namespace tessera::scheduler
