#include "scheduler/planner/shared/shared_outlook.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/planner/advice/assumption_changes.h"
#include "scheduler/planner/advice/device_places.h"
#include "scheduler/planner/advice/link_prices.h"
#include "scheduler/planner/advice/what_if.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/plan_text.h"
#include "scheduler/planner/shared/shared_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kWorthSaying = 1e-4;  // of theta
constexpr int kMostDeals = 24;         // with one more device

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
        AddDevices(absl::StrFormat("one more %s brings about %.3f %s (estimate: the dual)", kind,
                                   worth, ThetaUnit(shared_.of_asked)));
      }
      AddDevices(StrCat("not dealt again with one more device above ", kReplannedUpTo,
                        " devices, where it takes long: use --sensitivity"));
      return;
    }
    size_t untried = kinds.size();
    for (const std::string& kind : kinds) {
      if (deals_ >= kMostDeals || Stopped()) break;
      if (Device(kind)) --untried;
    }
    if (untried == 0) return;
    AddDevices(StrCat(Stopped() ? "interrupted: " : "", "not dealt again with one more of ",
                      untried, untried == kinds.size() ? " kinds" : " other kinds"));
  }

  void Assumptions() {
    for (const AssumptionChange& change : AssumptionChanges()) {
      if (Stopped()) {
        AddSensitivity("interrupted: not all assumptions were tried");
        return;
      }
      const std::vector<PlannerInput> changed = Changed(inputs_, change.apply);
      const Judged kept = Judge(changed);
      std::string line =
          kept.status.ok()
              ? absl::StrFormat("%s: %.3f %s (%s), %s", change.name, kept.theta,
                                ThetaUnit(shared_.of_asked), ChangeText(kept.theta / shared_.theta),
                                Rates(kept.plans))
              : StrCat(change.name, ": these layouts do not work: ", WhyNotKept(kept.status));
      if (search_again_) line += Choice(changed, kept.theta);
      AddSensitivity(line);
    }
    if (!search_again_)
      AddSensitivity(
          "whether another deal would be chosen then is unknown: --sensitivity deals again");
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
    question.layout = "these layouts";
    question.watch = options_.watch;
    std::vector<std::string> lines = LinkPriceLines(std::move(question));
    if (Stopped()) lines.push_back("interrupted: not all links were tried");
    for (v1::DeploymentPlan& plan : shared_.plans)
      plan.mutable_link_prices()->Add(lines.begin(), lines.end());
  }

 private:
  bool Stopped() const { return options_.watch.Stopped(); }

  void AddDevices(const std::string& line) {
    for (v1::DeploymentPlan& plan : shared_.plans) plan.add_device_prices(line);
  }

  void AddSensitivity(const std::string& line) {
    for (v1::DeploymentPlan& plan : shared_.plans) plan.add_sensitivity(line);
  }

  std::string Choice(const std::vector<PlannerInput>& changed, double kept) const {
    const absl::StatusOr<SharedPlans> best = PlanShared(changed, options_, dealing_);
    if (Stopped()) return "; interrupted before the devices were dealt again";
    if (!best.ok()) return "; no other deal works either";
    if (best->theta <= kept * kOtherChoice) return "; the deal stays";
    return absl::StrFormat("; another deal would be chosen, for %.3f %s", best->theta,
                           ThetaUnit(shared_.of_asked));
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

  // "A 1.000 -> 1.200, B 2.000 -> 2.100 requests/s".
  std::string Rates(const std::vector<v1::DeploymentPlan>& then) const {
    std::vector<std::string> rates;
    for (size_t i = 0; i < then.size(); ++i) {
      rates.push_back(absl::StrFormat("%s %.3f -> %.3f", then[i].model().name(),
                                      shared_.plans[i].prediction().requests_per_second(),
                                      then[i].prediction().requests_per_second()));
    }
    return StrCat(absl::StrJoin(rates, ", "), " requests/s");
  }

  // False: stopped before any place was tried.
  bool Device(const std::string& kind) {
    double most = kWorthSaying * shared_.theta;
    std::string what;
    size_t tried = 0;
    const std::vector<DevicePlace> places = PlacesFor(kind, inputs_.front().cluster);
    for (const DevicePlace& place : places) {
      if (deals_ >= kMostDeals || Stopped()) break;
      v1::Cluster more = inputs_.front().cluster;
      if (!ApplyChanges(place.change, &more).ok()) continue;
      ++deals_;
      const absl::StatusOr<SharedPlans> with =
          PlanShared(Changed(inputs_, [&](PlannerInput* input) { input->cluster = more; }),
                     options_, dealing_);
      // A deal that was cut short says nothing.
      if (Stopped()) break;
      ++tried;
      if (!with.ok() || with->theta - shared_.theta <= most) continue;
      most = with->theta - shared_.theta;
      what = StrCat(place.words, "): ", Rates(with->plans));
    }
    if (tried == 0) return false;
    AddDevices(what.empty()
                   ? StrCat("one more ", kind, " brings nothing (dealt again, ",
                            tried < places.size() ? StrCat(tried, " of ", places.size()) : "all",
                            " places tried)")
                   : absl::StrFormat("one more %s brings %.3f %s (dealt again, %s", kind, most,
                                     ThetaUnit(shared_.of_asked), what));
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
