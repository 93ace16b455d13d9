#include "scheduler/planner/shared/shared_outlook.h"

#include <string>
#include <utility>

#include "scheduler/planner/advice/device_places.h"
#include "scheduler/planner/advice/outlook.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/shared/shared_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

// What the bounding program says of devices where nothing is dealt again.
std::vector<v1::DevicePrice> Estimates(const SharedPlans& shared) {
  std::vector<v1::DevicePrice> prices;
  for (const auto& [kind, worth] : shared.device_worths) {
    v1::DeviceEstimate& estimate = *prices.emplace_back().mutable_estimate();
    estimate.add_kinds(kind);
    estimate.set_value(worth);
    estimate.set_unit(ThetaUnit(shared.of_asked));
    estimate.set_dual(true);
  }
  prices.emplace_back().set_above_devices(kReplannedUpTo);
  for (v1::DevicePrice& price : prices) price.set_shared(true);
  return prices;
}

// `options` outlive it.
OutlookQuestion QuestionOf(const std::vector<PlannerInput>& inputs, const PlannerOptions& options,
                           const SharedPlans& shared) {
  OutlookQuestion question;
  question.inputs = inputs;
  question.now.value = shared.theta;
  question.now.plans = shared.plans;
  std::vector<PlannerOptions> judging;  // by model: its layout, no search
  for (const v1::DeploymentPlan& plan : shared.plans) judging.push_back(JudgingOf(options, plan));
  judging.back().preference = {};
  question.judge = [judging, weights = shared.weights](const auto& changed) {
    Replanned then;
    for (size_t i = 0; i < changed.size(); ++i) {
      absl::StatusOr<v1::DeploymentPlan> plan = MakePlan(changed[i], judging[i]);
      then.status = plan.status();
      if (!plan.ok()) return then;
      then.plans.push_back(*std::move(plan));
    }
    std::string overload;
    then.value = CommonPart(then.plans, weights, &overload);
    return then;
  };
  SharingOptions dealing;
  dealing.weights = shared.weights;
  dealing.choices = shared.plain;
  dealing.bound = false;
  question.search = [&options, dealing](const auto& changed, bool) {
    Replanned then;
    absl::StatusOr<SharedPlans> deal = PlanShared(changed, options, dealing);
    then.status = deal.status();
    if (!deal.ok()) return then;
    then.value = deal->theta;
    then.plans = std::move(deal->plans);
    return then;
  };
  question.all_loads = PlanForPicture(shared);
  question.unit = ThetaUnit(shared.of_asked);
  question.shared = true;
  question.watch = options.watch;
  return question;
}

}  // namespace

void AddSharedOutlook(const std::vector<PlannerInput>& inputs, const PlannerOptions& options,
                      bool search_again, SharedPlans* shared) {
  if (shared->theta <= 0) return;
  PlannerOptions reporting = options;
  reporting.watch.progress = [&](const std::string& what) {
    options.watch.Report(StrCat("what changes would bring: ", what));
  };
  const SearchWatch& watch = reporting.watch;
  const Outlook outlook(QuestionOf(inputs, reporting, *shared));
  // What takes no search comes first: who interrupts the rest has it.
  std::vector<v1::Sensitivity> facts = outlook.Assumptions();
  std::vector<v1::LinkPrice> links = outlook.Links(false);
  if (watch.Stopped()) links.emplace_back().set_interrupted(true);
  if (watch.Stopped()) facts.emplace_back().set_interrupted(true);
  if (!watch.Stopped() && !search_again) facts.emplace_back().set_not_searched(true);
  facts.back().set_shared(true);
  const bool deals = search_again || DevicesOf(inputs.front().cluster) <= kReplannedUpTo;
  const std::vector<v1::DevicePrice> prices = deals ? outlook.Devices() : Estimates(*shared);
  if (search_again) outlook.AddChoices(&facts);
  for (v1::DeploymentPlan& plan : shared->plans) {
    plan.mutable_sensitivity()->Assign(facts.begin(), facts.end());
    plan.mutable_link_prices()->Assign(links.begin(), links.end());
    for (const v1::DevicePrice& price : prices) *plan.add_device_prices() = price;
  }
}

}  // namespace tessera::scheduler
