#include "scheduler/planner/advice/sensitivity.h"

#include <algorithm>
#include <functional>
#include <set>

#include "scheduler/planner/advice/device_places.h"
#include "scheduler/planner/advice/outlook.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/plan_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr int kPricedUpTo = 2000;  // devices of a cluster that is planned again with one more

class Choices {
 public:
  Choices(const PlannerInput& input, const PlannerOptions& options, v1::DeploymentPlan* plan)
      : input_(input), options_(options), plan_(*plan), now_(PromisedRate(*plan)) {}

  // What the other choices would have been worth, and what limits them.
  void Run() {
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
  v1::DeploymentPlan& plan_;
  const double now_;
};

}  // namespace

void AddSensitivity(const PlannerInput& input, const PlannerOptions& options, bool search_again,
                    v1::DeploymentPlan* plan) {
  if (PromisedRate(*plan) <= 0) return;
  const int devices = DevicesOf(input.cluster);
  // Plans that must survive take many searches each.
  const bool quick = devices <= kReplannedUpTo && !options.survive_machine_loss;
  PlannerOptions reporting = AgainAt(*plan, options);
  reporting.watch.progress = [&](const std::string& what) {
    options.watch.Report(StrCat("what changes would bring: ", what));
  };
  // What takes no search comes first: who interrupts the rest has it.
  const Outlook outlook(OutlookOf(input, reporting, *plan));
  std::vector<v1::Sensitivity> facts = outlook.Assumptions();
  const bool searches = search_again || quick;
  if (!searches && !reporting.watch.Stopped()) facts.emplace_back().set_not_searched(true);
  for (v1::LinkPrice& price : outlook.Links(search_again))
    *plan->add_link_prices() = std::move(price);
  if (searches && !options.given_search && devices < kPricedUpTo) AddDevicePrices(outlook, plan);
  if (searches) outlook.AddChoices(&facts);
  if (search_again) Choices(input, reporting, plan).Run();
  if (reporting.watch.Stopped()) facts.emplace_back().set_interrupted(true);
  for (v1::Sensitivity& fact : facts) *plan->add_sensitivity() = std::move(fact);
}

}  // namespace tessera::scheduler
