#include "scheduler/planner/shared/shared_outlook.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "scheduler/planner/advice/assumption_changes.h"
#include "scheduler/planner/advice/device_places.h"
#include "scheduler/planner/advice/link_prices.h"
#include "scheduler/planner/advice/what_if.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/shared/shared_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kWorthSaying = 1e-4;  // of theta
constexpr int kMaxDeals = 24;          // with one more device

// A change that every model sees the same.
template <typename Apply>
std::vector<PlannerInput> Changed(std::vector<PlannerInput> inputs, Apply apply) {
  for (PlannerInput& input : inputs) apply(&input);
  return inputs;
}

class Outlook {
 public:
  Outlook(const std::vector<PlannerInput>& inputs, const PlannerOptions& options, bool search_again,
          SharedPlans* shared)
      : inputs_(inputs), options_(options), search_again_(search_again), shared_(*shared) {
    for (const v1::DeploymentPlan& plan : shared->plans)
      judging_.push_back(JudgingOf(options, plan));
    judging_.back().preference = {};
    dealing_.weights = shared->weights;
    dealing_.choices = shared->plain;
    dealing_.bound = false;
  }

  void Devices() {
    const std::set<std::string> kinds = KindsOf(inputs_.front().cluster);
    if (!search_again_ && DevicesOf(inputs_.front().cluster) > kReplannedUpTo) {
      for (const auto& [kind, worth] : shared_.device_worths) {
        v1::DevicePrice price;
        price.mutable_estimate()->add_kinds(kind);
        price.mutable_estimate()->set_value(worth);
        price.mutable_estimate()->set_unit(ThetaUnit(shared_.of_asked));
        price.mutable_estimate()->set_dual(true);
        AddDevices(std::move(price));
      }
      v1::DevicePrice untried;
      untried.set_above_devices(kReplannedUpTo);
      AddDevices(std::move(untried));
      return;
    }
    size_t untried = kinds.size();
    for (const std::string& kind : kinds) {
      if (deals_ >= kMaxDeals || Stopped()) break;
      if (Device(kind)) --untried;
    }
    if (untried == 0) return;
    v1::DevicePrice price;
    price.mutable_untried()->set_kinds(static_cast<int>(untried));
    price.mutable_untried()->set_all(untried == kinds.size());
    price.mutable_untried()->set_interrupted(Stopped());
    AddDevices(std::move(price));
  }

  void Assumptions() {
    for (const AssumptionChange& change : AssumptionChanges()) {
      v1::Sensitivity fact;
      if (Stopped()) {
        fact.set_interrupted(true);
        AddSensitivity(std::move(fact));
        return;
      }
      const std::vector<PlannerInput> inputs = Changed(inputs_, change.apply);
      const Judged kept = Judge(inputs);
      v1::ChangedAssumption& changed = *fact.mutable_changed();
      changed.set_assumed(change.assumed);
      changed.set_factor(change.factor);
      changed.set_unit(ThetaUnit(shared_.of_asked));
      if (kept.status.ok()) {
        changed.set_value(kept.theta);
        changed.set_ratio(kept.theta / shared_.theta);
        *changed.mutable_rates() = Rates(kept.plans);
      } else {
        changed.set_error(WhyNotKept(kept.status));
      }
      if (search_again_) Choose(inputs, kept.theta, &changed);
      AddSensitivity(std::move(fact));
    }
    if (search_again_) return;
    v1::Sensitivity fact;
    fact.set_not_searched(true);
    AddSensitivity(std::move(fact));
  }

  void Links() {
    LinkQuestion question;
    question.input = inputs_.front();
    question.plan = PlanForPicture(shared_);
    question.judge = [this](const PlannerInput& changed) {
      return Judge(Changed(inputs_,
                           [&](PlannerInput* input) {
                             input->cluster = changed.cluster;
                             input->catalogue = changed.catalogue;
                           }))
          .theta;
    };
    question.now = shared_.theta;
    question.unit = ThetaUnit(shared_.of_asked);
    question.shared = true;
    question.watch = options_.watch;
    std::vector<v1::LinkPrice> prices = LinkPrices(std::move(question));
    if (Stopped()) prices.emplace_back().set_interrupted(true);
    for (v1::DeploymentPlan& plan : shared_.plans)
      plan.mutable_link_prices()->Assign(prices.begin(), prices.end());
  }

 private:
  bool Stopped() const { return options_.watch.Stopped(); }

  void AddDevices(v1::DevicePrice price) {
    price.set_shared(true);
    for (v1::DeploymentPlan& plan : shared_.plans) *plan.add_device_prices() = price;
  }

  void AddSensitivity(v1::Sensitivity fact) {
    fact.set_shared(true);
    for (v1::DeploymentPlan& plan : shared_.plans) *plan.add_sensitivity() = fact;
  }

  void Choose(const std::vector<PlannerInput>& inputs, double kept,
              v1::ChangedAssumption* changed) const {
    const absl::StatusOr<SharedPlans> best = PlanShared(inputs, options_, dealing_);
    if (Stopped()) {
      changed->set_choice(v1::CHOICE_THEN_INTERRUPTED);
    } else if (!best.ok()) {
      changed->set_choice(v1::CHOICE_THEN_NONE);
    } else if (best->theta <= kept * kOtherChoice) {
      changed->set_choice(v1::CHOICE_THEN_STAYS);
    } else {
      changed->set_choice(v1::CHOICE_THEN_OTHER);
      changed->set_other_value(best->theta);
    }
  }

  struct Judged {
    double theta = 0;
    std::vector<v1::DeploymentPlan> plans;
    absl::Status status;  // why a layout does not work
  };

  // The layouts there are.
  Judged Judge(const std::vector<PlannerInput>& inputs) const {
    Judged judged;
    for (size_t i = 0; i < inputs.size(); ++i) {
      absl::StatusOr<v1::DeploymentPlan> plan = MakePlan(inputs[i], judging_[i]);
      if (!plan.ok()) {
        judged.status = plan.status();
        return judged;
      }
      judged.plans.push_back(*std::move(plan));
    }
    std::string overload;
    judged.theta = CommonPart(judged.plans, shared_.weights, &overload);
    return judged;
  }

  google::protobuf::RepeatedPtrField<v1::RateChange> Rates(
      const std::vector<v1::DeploymentPlan>& then) const {
    google::protobuf::RepeatedPtrField<v1::RateChange> rates;
    for (size_t i = 0; i < then.size(); ++i) {
      v1::RateChange& one = *rates.Add();
      one.set_model(then[i].model().name());
      one.set_requests_per_second(shared_.plans[i].prediction().requests_per_second());
      one.set_changed_requests_per_second(then[i].prediction().requests_per_second());
    }
    return rates;
  }

  // False: stopped before any place was tried.
  bool Device(const std::string& kind) {
    v1::DevicePrice price;
    v1::DeviceGain& gain = *price.mutable_gain();
    const std::vector<DevicePlace> places = PlacesFor(kind, inputs_.front().cluster);
    for (const DevicePlace& place : places) {
      if (deals_ >= kMaxDeals || Stopped()) break;
      v1::Cluster more = inputs_.front().cluster;
      if (!ApplyChanges(place.change, &more).ok()) continue;
      ++deals_;
      const absl::StatusOr<SharedPlans> with =
          PlanShared(Changed(inputs_, [&](PlannerInput* input) { input->cluster = more; }),
                     options_, dealing_);
      // A deal that was cut short says nothing.
      if (Stopped()) break;
      gain.set_tried(gain.tried() + 1);
      const double value = with.ok() ? with->theta - shared_.theta : 0;
      if (value <= std::max(gain.value(), kWorthSaying * shared_.theta)) continue;
      gain.set_value(value);
      *gain.mutable_place() = place.fact;
      *gain.mutable_rates() = Rates(with->plans);
    }
    if (gain.tried() == 0) return false;
    gain.set_kind(kind);
    gain.set_unit(ThetaUnit(shared_.of_asked));
    gain.set_places(static_cast<int>(places.size()));
    AddDevices(std::move(price));
    return true;
  }

  const std::vector<PlannerInput>& inputs_;
  const PlannerOptions& options_;
  const bool search_again_;
  SharedPlans& shared_;
  std::vector<PlannerOptions> judging_;  // by model: its layout, no search
  SharingOptions dealing_;
  int deals_ = 0;
};

}  // namespace

void AddSharedOutlook(const std::vector<PlannerInput>& inputs, const PlannerOptions& options,
                      bool search_again, SharedPlans* shared) {
  if (shared->theta <= 0) return;
  PlannerOptions told = options;
  told.watch.progress = [&](const std::string& what) {
    options.watch.Report(StrCat("what changes would bring: ", what));
  };
  Outlook outlook(inputs, told, search_again, shared);
  outlook.Devices();
  outlook.Assumptions();
  outlook.Links();
}

}  // namespace tessera::scheduler
