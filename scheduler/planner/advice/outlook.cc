#include "scheduler/planner/advice/outlook.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "scheduler/input/cluster_graph.h"
#include "scheduler/planner/advice/assumption_changes.h"
#include "scheduler/planner/advice/described_links.h"
#include "scheduler/planner/advice/device_places.h"
#include "scheduler/planner/advice/what_if.h"
#include "scheduler/planner/plan_writer.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/planning_problem.h"
#include "scheduler/planner/refusal.h"
#include "scheduler/planner/report/plan_text.h"
#include "scheduler/planner/written_layout.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr char kLayoutName[] = "the plan";
constexpr double kServesAsked = 1 - 1e-6;
constexpr double kWorthSaying = 1e-4;   // of the value
constexpr double kRounding = 1e-9;      // of the value
constexpr double kLinkStep = 10e9 / 8;  // bytes per second: 10 Gbit/s
constexpr int kMaxPricedLinks = 40;     // each costs one evaluation of the plan
constexpr int kMaxPricedOfMany = 8;     // where one takes half a second
constexpr int kManyDevices = 1000;
constexpr int kMaxReplannedLinks = 8;

// Why a layout does not work, in a line, without the name under which the planner was given it.
std::string WhyNotKept(const absl::Status& status) {
  const std::string text = FirstLine(StdView(status.message())), name = StrCat(kLayoutName, ": ");
  return text.starts_with(name) ? text.substr(name.size()) : text;
}

Replanned PlannedBy(const PlannerOptions& options, const PlannerInput& input) {
  Replanned then;
  absl::StatusOr<v1::DeploymentPlan> plan = MakePlan(input, options);
  then.status = plan.status();
  if (!plan.ok()) return then;
  then.value = PromisedRate(*plan);
  then.plans.push_back(*std::move(plan));
  return then;
}

// The rate of the layout that is given, by no more of a plan than that takes. Where it does not
// serve within its limits the planner says what is left of it, or why nothing is.
Replanned JudgedBy(const PlannerOptions& options, const PlannerInput& input) {
  const auto planning = ReadPlanningProblem(input, options);
  if (!planning.ok() || (*planning)->spot()) return PlannedBy(options, input);
  PlacementProblem& problem = (*planning)->problem;
  if (options.preference.only_tpot_seconds)
    problem.options.max_tpot_seconds = *options.preference.only_tpot_seconds;
  const absl::StatusOr<Placement> placement = options.given_search(problem);
  if (!placement.ok() || placement->requests_per_second < kMinRequestsPerSecond)
    return PlannedBy(options, input);
  Replanned then;
  then.plans.push_back(WriteServedPlan(**planning, problem, *placement));
  then.value = PromisedRate(then.plans.back());
  return then;
}

std::map<std::string, int> UsedByKind(const v1::DeploymentPlan& plan) {
  std::map<std::string, int> used;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) ++used[worker.kind()];
    }
  }
  return used;
}

// Adds devices that are idle now and are used then, beside one more of `kind`.
void AddWoken(const v1::DeploymentPlan& now, const v1::DeploymentPlan& then,
              const std::string& kind, v1::DeviceGain* gain) {
  std::map<std::string, int> used = UsedByKind(now);
  ++used[kind];  // the new one
  gain->clear_woken();
  for (const auto& [other, count] : UsedByKind(then)) {
    const int more = count - used[other];
    if (more <= 0) continue;
    v1::KindCount& woken = *gain->add_woken();
    woken.set_kind(other);
    woken.set_devices(more);
  }
}

}  // namespace

double PromisedRate(const v1::DeploymentPlan& plan) {
  return plan.has_survival() ? plan.survival().requests_per_second()
                             : plan.prediction().requests_per_second();
}

v1::ValueUnit PromisedUnit(const v1::DeploymentPlan& plan) {
  return plan.has_survival() ? v1::VALUE_UNIT_REQUESTS_AFTER_LOSS : v1::VALUE_UNIT_REQUESTS;
}

PlannerOptions AgainAt(const v1::DeploymentPlan& plan, const PlannerOptions& options) {
  PlannerOptions again = options;
  again.attain_requests = 0;
  Preference& preference = again.preference;
  if (!preference.any()) return again;
  const double limit = plan.certificate().max_tpot_seconds();
  preference.full_tpot_seconds = preference.full_ttft_seconds = 0;
  preference.only_tpot_seconds = limit > 0 ? limit : std::numeric_limits<double>::infinity();
  return again;
}

PlannerOptions JudgingOf(const PlannerOptions& options, const v1::DeploymentPlan& plan) {
  PlannerOptions judging = options;
  judging.given_search = GivenLayout(LayoutOf(plan), kLayoutName);
  judging.simulate = false;
  return judging;
}

OutlookQuestion OutlookOf(const PlannerInput& input, const PlannerOptions& options,
                          const v1::DeploymentPlan& plan) {
  OutlookQuestion question;
  question.inputs = {input};
  question.now.value = PromisedRate(plan);
  question.now.plans = {plan};
  question.judge = [judging = JudgingOf(options, plan)](const auto& inputs) {
    return JudgedBy(judging, inputs.front());
  };
  question.search = [options](const auto& inputs, bool predicted) {
    PlannerOptions again = options;
    if (predicted) again.simulate = false;
    return PlannedBy(again, inputs.front());
  };
  question.unit = PromisedUnit(plan);
  question.goal = options.goal;
  question.watch = options.watch;
  return question;
}

std::vector<v1::Sensitivity> Outlook::Assumptions() const {
  std::vector<v1::Sensitivity> facts;
  if (ask_.goal == Goal::kPrice) facts.emplace_back().set_rates_of_layout(true);
  for (const AssumptionChange& change : AssumptionChanges()) {
    if (Stopped()) return facts;
    const Replanned kept = ask_.judge(Changed(change.apply));
    facts.emplace_back().set_shared(ask_.shared);
    v1::ChangedAssumption& changed = *facts.back().mutable_changed();
    changed.set_assumed(change.assumed);
    changed.set_factor(change.factor);
    changed.set_unit(ask_.unit);
    if (kept.status.ok()) {
      changed.set_value(kept.value);
      changed.set_ratio(kept.value / ask_.now.value);
      *changed.mutable_rates() = Rates(kept);
    } else {
      changed.set_error(WhyNotKept(kept.status));
    }
  }
  return facts;
}

void Outlook::AddChoices(std::vector<v1::Sensitivity>* facts) const {
  const std::vector<AssumptionChange> changes = AssumptionChanges();
  size_t next = 0;
  for (v1::Sensitivity& fact : *facts) {
    if (!fact.has_changed()) continue;
    if (Stopped()) return;
    Choose(Changed(changes[next++].apply), fact.mutable_changed());
  }
}

void Outlook::Choose(const OutlookQuestion::Inputs& inputs, v1::ChangedAssumption* changed) const {
  const Replanned best = ask_.search(inputs, false);
  if (Stopped()) {
    changed->set_choice(v1::CHOICE_THEN_INTERRUPTED);
  } else if (!best.status.ok()) {
    changed->set_choice(v1::CHOICE_THEN_NONE);
  } else if (ask_.goal == Goal::kPrice) {
    ChooseCheapest(best.plans.front(), changed);
  } else {
    const bool other = best.value > changed->value() * kOtherChoice;
    changed->set_choice(other ? v1::CHOICE_THEN_OTHER : v1::CHOICE_THEN_STAYS);
    if (other) changed->set_other_value(best.value);
  }
}

// The layout's price stays, as long as it still serves what was asked.
void Outlook::ChooseCheapest(const v1::DeploymentPlan& best, v1::ChangedAssumption* changed) const {
  const double own_usd = ask_.now.plans.front().certificate().value();
  const double usd = best.certificate().value();
  const double asked = ask_.inputs.front().workload.requests_per_second();
  const bool serves = changed->value() >= asked * kServesAsked;
  const bool stays = serves && usd * kOtherChoice >= own_usd;
  changed->set_choice(stays ? v1::CHOICE_THEN_STAYS : v1::CHOICE_THEN_OTHER);
  if (stays) return;
  changed->set_other_usd_per_hour(usd);
  changed->set_usd_per_hour(own_usd);
  changed->set_serves_less(!serves);
}

// By model, where there are several.
google::protobuf::RepeatedPtrField<v1::RateChange> Outlook::Rates(const Replanned& then) const {
  google::protobuf::RepeatedPtrField<v1::RateChange> rates;
  for (size_t i = 0; ask_.shared && i < then.plans.size(); ++i) {
    v1::RateChange& one = *rates.Add();
    one.set_model(then.plans[i].model().name());
    one.set_requests_per_second(ask_.now.plans[i].prediction().requests_per_second());
    one.set_changed_requests_per_second(then.plans[i].prediction().requests_per_second());
  }
  return rates;
}

std::vector<v1::LinkPrice> Outlook::Links(bool search_again) const {
  PlannerInput input = ask_.inputs.front();  // with one link changed at a time
  const v1::DeploymentPlan& loads = ask_.all_loads ? *ask_.all_loads : ask_.now.plans.front();
  const std::vector<DescribedLink> links = LinksByLoad(loads, &input);
  std::vector<v1::LinkPrice> prices;
  const auto add = [&]() -> v1::LinkPrice& {
    v1::LinkPrice& price = prices.emplace_back();
    price.set_shared(ask_.shared);
    price.set_more_bytes_per_second(kLinkStep);
    return price;
  };
  if (loads.links().empty()) add().set_nothing_sent(true);
  // How much more than now; a gain that is worth saying is said.
  const auto gain_of = [&](const DescribedLink& one, bool searched) {
    const double before = one.link->bandwidth_bytes_per_second();
    one.link->set_bandwidth_bytes_per_second(before + kLinkStep);
    const auto inputs = Changed([&](PlannerInput* other) {
      other->cluster = input.cluster;
      other->catalogue = input.catalogue;
    });
    const Replanned then = searched ? ask_.search(inputs, false) : ask_.judge(inputs);
    one.link->set_bandwidth_bytes_per_second(before);
    const double more = then.value - ask_.now.value;
    if (more <= kWorthSaying * ask_.now.value || (searched && Stopped())) return more;
    v1::LinkGain& gain = *add().mutable_gain();
    gain.set_link(one.name);
    gain.set_bytes_per_second(before);
    gain.set_value(more);
    gain.set_unit(ask_.unit);
    gain.set_searched_again(searched);
    return more;
  };
  const int all = static_cast<int>(links.size());
  int tried = 0, worthless = 0;
  bool a_little = false;
  const bool many = DevicesOf(input.cluster) > kManyDevices;
  const int most = std::min(all, many ? kMaxPricedOfMany : kMaxPricedLinks);
  for (; tried < most && !Stopped(); ++tried) {
    const double more = gain_of(links[static_cast<size_t>(tried)], false);
    if (more > kWorthSaying * ask_.now.value) continue;
    ++worthless;
    a_little = a_little || more > kRounding * ask_.now.value;
  }
  if (worthless > 0) {
    v1::OtherLinks& others = *add().mutable_others();
    others.set_links(worthless);
    others.set_tried(tried);
    others.set_untried(all - tried);
    others.set_inside_only(loads.links().empty());
    others.set_a_little(a_little);
  }
  // Searches come last: who interrupts them has the rest.
  int searched = 0, without_gain = 0;
  for (; search_again && searched < std::min(all, kMaxReplannedLinks) && !Stopped(); ++searched) {
    const double more = gain_of(links[static_cast<size_t>(searched)], true);
    if (Stopped()) break;  // within the search
    without_gain += more <= kWorthSaying * ask_.now.value ? 1 : 0;
  }
  if (without_gain > 0) {
    v1::SearchedLinks& found = *add().mutable_searched();
    found.set_links(without_gain);
    found.set_searched(searched);
    found.set_of_links(all);
  }
  return prices;
}

v1::ValueUnit Outlook::GainUnit() const {
  return ask_.goal == Goal::kPrice ? v1::VALUE_UNIT_USD_PER_HOUR : ask_.unit;
}

double Outlook::GainOf(const Replanned& base, const Replanned& then) const {
  if (ask_.goal != Goal::kPrice) return then.value - base.value;
  return base.plans.front().certificate().value() - then.plans.front().certificate().value();
}

// As plans call it.
std::string Outlook::NameOf(const std::string& kind) const {
  const PlannerInput& input = ask_.inputs.front();
  const auto described = DescribedKind(input.cluster, input.catalogue, kind);
  return described ? described->name() : kind;
}

// What plans with one more device are held against: where the simulation chose, maybe another one
// than the plan.
Replanned Outlook::BaseOfDevices(std::vector<v1::DevicePrice>* prices) const {
  if (ask_.shared || !ask_.now.plans.front().has_simulated() || Stopped()) return ask_.now;
  Replanned predicted = ask_.search(ask_.inputs, true);
  if (!predicted.status.ok() || Stopped()) return ask_.now;
  const double base = predicted.plans.front().certificate().value();
  const double now = ask_.now.plans.front().certificate().value();
  if (std::abs(base - now) > kWorthSaying * now) {
    v1::PriceBase& counted_from = *prices->emplace_back().mutable_base();
    counted_from.set_value(base);
    counted_from.set_unit(GainUnit());
  }
  return predicted;
}

// In the best place. Searches that are interrupted tell too little: they were not tried.
v1::DeviceGain Outlook::Gain(const std::string& kind, const Replanned& base, int* left) const {
  v1::DeviceGain best;
  int tried = 0;
  const std::vector<DevicePlace> places = PlacesFor(kind, ask_.inputs.front().cluster);
  for (const DevicePlace& place : places) {
    if (*left <= 0 || Stopped()) break;
    v1::Cluster more = ask_.inputs.front().cluster;
    if (!ApplyChanges(place.change, &more).ok()) continue;
    --*left;
    const Replanned with =
        ask_.search(Changed([&](PlannerInput* input) { input->cluster = more; }), true);
    if (Stopped()) break;
    ++tried;
    const double gain = with.status.ok() ? GainOf(base, with) : 0;
    if (gain <= best.value()) continue;
    best.set_value(gain);
    *best.mutable_place() = place.fact;
    *best.mutable_rates() = Rates(with);
    // Where devices are rented those that nobody uses are not idle.
    if (!ask_.shared && ask_.goal != Goal::kPrice && ask_.goal != Goal::kBudget)
      AddWoken(base.plans.front(), with.plans.front(), NameOf(kind), &best);
  }
  const double value = ask_.shared ? base.value : base.plans.front().certificate().value();
  if (best.value() <= kWorthSaying * value) best.Clear();
  best.set_kind(kind);
  best.set_unit(GainUnit());
  best.set_tried(tried);
  best.set_places(static_cast<int>(places.size()));
  return best;
}

std::vector<v1::DevicePrice> Outlook::Devices(int most_searches) const {
  std::vector<v1::DevicePrice> prices;
  const std::set<std::string> kinds = KindsOf(ask_.inputs.front().cluster);
  const Replanned base = BaseOfDevices(&prices);
  size_t untried = 0;
  for (const std::string& kind : kinds) {
    v1::DeviceGain gain;
    if (most_searches > 0 && !Stopped()) gain = Gain(kind, base, &most_searches);
    if (gain.tried() == 0) {
      ++untried;
      continue;
    }
    *prices.emplace_back().mutable_gain() = std::move(gain);
  }
  if (untried > 0) {
    v1::UntriedKinds& rest = *prices.emplace_back().mutable_untried();
    rest.set_kinds(static_cast<int>(untried));
    rest.set_all(ask_.shared && untried == kinds.size());
    rest.set_interrupted(ask_.shared && Stopped());
  }
  for (v1::DevicePrice& price : prices) price.set_shared(ask_.shared);
  return prices;
}

void AddDevicePrices(const Outlook& outlook, v1::DeploymentPlan* plan) {
  const std::vector<v1::DevicePrice> prices = outlook.Devices();
  if (std::ranges::none_of(prices, [](const auto& one) { return one.has_untried(); }))
    plan->clear_device_prices();
  for (const v1::DevicePrice& price : prices) *plan->add_device_prices() = price;
}

}  // namespace tessera::scheduler
