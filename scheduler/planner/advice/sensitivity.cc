#include "scheduler/planner/advice/sensitivity.h"

#include <algorithm>
#include <functional>
#include <set>

#include "scheduler/planner/advice/assumption_changes.h"
#include "scheduler/planner/advice/device_places.h"
#include "scheduler/planner/advice/device_prices.h"
#include "scheduler/planner/advice/link_prices.h"
#include "scheduler/planner/advice/plan_again.h"
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
    if (options_.goal == Goal::kPrice) plan_.add_sensitivity()->set_rates_of_layout(true);
    first_ = plan_.sensitivity_size();
    for (const AssumptionChange& change : AssumptionChanges()) {
      if (options_.watch.Stopped()) return;
      PlannerInput input = input_;
      change.apply(&input);
      const absl::StatusOr<v1::DeploymentPlan> kept = MakePlan(input, judging_);
      v1::ChangedAssumption& changed = *plan_.add_sensitivity()->mutable_changed();
      changed.set_assumed(change.assumed);
      changed.set_factor(change.factor);
      changed.set_unit(PromisedUnit(plan_));
      if (kept.ok()) {
        changed.set_value(PromisedRate(*kept));
        changed.set_ratio(changed.value() / now_);
      } else {
        changed.set_error(WhyNotKept(kept.status()));
      }
    }
    if (!search_again) plan_.add_sensitivity()->set_not_searched(true);
  }

  // Finds for each change whether another layout would then be chosen.
  void Choices() {
    const std::vector<AssumptionChange> changes = AssumptionChanges();
    for (size_t i = 0; i < changes.size(); ++i) {
      if (options_.watch.Stopped()) return;
      PlannerInput input = input_;
      changes[i].apply(&input);
      Choose(input, plan_.mutable_sensitivity(first_ + static_cast<int>(i))->mutable_changed());
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
      Alternative(v1::CHOICE_KIND_WHOLE, "", input_, whole);
    }
    if (kinds.size() < 2) return;
    for (const bool only : {true, false}) {
      for (const std::string& kind : kinds) {
        if (options_.watch.Stopped()) return;
        PlannerInput some = input_;
        Keep(&some.cluster, [&](const std::string& k) { return (k == kind) == only; });
        Alternative(only ? v1::CHOICE_KIND_ONLY : v1::CHOICE_KIND_WITHOUT, kind, some, options_);
      }
    }
  }

 private:
  void Choose(const PlannerInput& input, v1::ChangedAssumption* changed) const {
    const absl::StatusOr<v1::DeploymentPlan> best = MakePlan(input, options_);
    if (options_.watch.Stopped()) {
      changed->set_choice(v1::CHOICE_THEN_INTERRUPTED);
    } else if (!best.ok()) {
      changed->set_choice(v1::CHOICE_THEN_NONE);
    } else if (options_.goal == Goal::kPrice) {
      ChooseCheapest(*best, changed);
    } else {
      const double reach = PromisedRate(*best);
      const bool other = reach > changed->value() * kOtherChoice;
      changed->set_choice(other ? v1::CHOICE_THEN_OTHER : v1::CHOICE_THEN_STAYS);
      if (other) changed->set_other_value(reach);
    }
  }

  // The layout's price stays, as long as it still serves what was asked.
  void ChooseCheapest(const v1::DeploymentPlan& best, v1::ChangedAssumption* changed) const {
    const double own_usd = plan_.certificate().value(), usd = best.certificate().value();
    const bool serves = changed->value() >= input_.workload.requests_per_second() * kServesAsked;
    const bool stays = serves && usd * kOtherChoice >= own_usd;
    changed->set_choice(stays ? v1::CHOICE_THEN_STAYS : v1::CHOICE_THEN_OTHER);
    if (stays) return;
    changed->set_other_usd_per_hour(usd);
    changed->set_usd_per_hour(own_usd);
    changed->set_serves_less(!serves);
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

  void Alternative(v1::ChoiceKind kind, const std::string& device, const PlannerInput& input,
                   const PlannerOptions& options) {
    if (options_.watch.Stopped()) return;
    const absl::StatusOr<v1::DeploymentPlan> plan = MakePlan(input, options);
    if (options_.watch.Stopped()) return;  // within the search
    v1::OtherChoice& choice = *plan_.add_alternatives();
    choice.set_choice(kind);
    choice.set_kind(device);
    if (!plan.ok()) {
      choice.mutable_missing()->set_error(FirstLine(StdView(plan.status().message())));
      return;
    }
    v1::FoundChoice& found = *choice.mutable_found();
    found.set_value(PromisedRate(*plan));
    found.set_unit(PromisedUnit(plan_));
    found.set_ratio(found.value() / now_);
    found.set_replicas(plan->replicas_size());
    if (!plan->certificate().pace().empty()) *found.mutable_pace() = plan->certificate().pace(0);
  }

  const PlannerInput& input_;
  const PlannerOptions& options_;
  PlannerOptions judging_;  // the plan's layout, no search
  v1::DeploymentPlan& plan_;
  double now_ = 0;
  int first_ = 0;  // of the plan's sensitivity, that is a change
};

}  // namespace

void AddSensitivity(const PlannerInput& input, const PlannerOptions& options, bool search_again,
                    v1::DeploymentPlan* plan) {
  if (PromisedRate(*plan) <= 0) return;
  // Plans that must survive take many searches each.
  const bool quick = DevicesOf(input.cluster) <= kReplannedUpTo && !options.survive_machine_loss;
  PlannerOptions reporting = AgainAt(*plan, options);
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
    plan->add_sensitivity()->set_interrupted(true);
  }
}

}  // namespace tessera::scheduler
