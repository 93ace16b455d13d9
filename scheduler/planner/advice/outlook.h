// What changes would bring: every figure is one of planning again with one thing changed.
//
// The one mechanism of prices, sensitivities and choices, for one model on a cluster and for
// several that share it. Everything is the planner itself on changed documents, so it holds for
// every search and device. Thread rule: one thread per object; deterministic. Units: requests per
// second, of several models the common part of their rates. Cost: layouts are judged again in
// milliseconds; a search again takes as long as the first. The watch of the question stops all of
// it early.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/plan.pb.h"
#include "scheduler/planner/planner_input.h"

namespace tessera::scheduler {

inline constexpr int kReplannedUpTo = 12;      // devices of a cluster that is planned again unasked
inline constexpr double kOtherChoice = 1.001;  // another choice must be better by this

// What a plan is judged by, in requests per second: what is promised.
double PromisedRate(const v1::DeploymentPlan& plan);
// Its unit: requests per second, where the plan must survive it those that the loss of a machine
// leaves.
v1::ValueUnit PromisedUnit(const v1::DeploymentPlan& plan);

// The options that a plan was made with, to search once more under its own limit of TPOT and no
// other: rates under different ones say nothing about each other. No rate is simulated.
PlannerOptions AgainAt(const v1::DeploymentPlan& plan, const PlannerOptions& options);
// Options that judge the layout of `plan` instead of searching one.
PlannerOptions JudgingOf(const PlannerOptions& options, const v1::DeploymentPlan& plan);

struct Replanned {
  absl::Status status;                    // why there are no plans
  double value = 0;                       // of the plans; 0: there are none
  std::vector<v1::DeploymentPlan> plans;  // by model
};

struct OutlookQuestion {
  using Inputs = std::vector<PlannerInput>;
  Inputs inputs;  // by model, of one cluster
  Replanned now;
  std::function<Replanned(const Inputs&)> judge;  // the layouts that there are
  // Searches again; `predicted`: without a simulation of what is found.
  std::function<Replanned(const Inputs&, bool predicted)> search;
  std::optional<v1::DeploymentPlan> all_loads;  // of the links, where several plans load them
  v1::ValueUnit unit = v1::VALUE_UNIT_REQUESTS;
  Goal goal = Goal::kThroughput;
  bool shared = false;  // the plans are those of several models
  SearchWatch watch;
};

// One model: its layout is judged as it is, and `options` search again.
OutlookQuestion OutlookOf(const PlannerInput& input, const PlannerOptions& options,
                          const v1::DeploymentPlan& plan);

class Outlook {
 public:
  explicit Outlook(OutlookQuestion question) : ask_(std::move(question)) {}

  // What the layouts are worth where assumptions are off.
  std::vector<v1::Sensitivity> Assumptions() const;
  // Adds to these whether other layouts would be chosen then.
  void AddChoices(std::vector<v1::Sensitivity>* facts) const;

  // What 10 Gbit/s more on a link bring these layouts, link by link, the fullest first, at most 40
  // (8 of more than 1,000 devices); with `search_again` what searches make of more on the first
  // few.
  std::vector<v1::LinkPrice> Links(bool search_again) const;

  // What one more device of each kind brings, planned again with it in the best place: beside the
  // devices of that kind in every machine of another shape, and as a machine of its own at every
  // site. A search that is not exact may find less with more: said as nothing. All these plans are
  // judged by what is predicted: a simulation of each would change at random which of their plans
  // is chosen. Where the plan itself was chosen by simulation gains are counted from the one that
  // is predicted to be best. At most `most_searches`.
  std::vector<v1::DevicePrice> Devices(int most_searches = 24) const;

 private:
  template <typename Apply>
  OutlookQuestion::Inputs Changed(const Apply& apply) const {
    OutlookQuestion::Inputs inputs = ask_.inputs;
    for (PlannerInput& input : inputs) apply(&input);
    return inputs;
  }
  bool Stopped() const { return ask_.watch.Stopped(); }
  void Choose(const OutlookQuestion::Inputs& inputs, v1::ChangedAssumption* changed) const;
  void ChooseCheapest(const v1::DeploymentPlan& best, v1::ChangedAssumption* changed) const;
  google::protobuf::RepeatedPtrField<v1::RateChange> Rates(const Replanned& then) const;
  double GainOf(const Replanned& base, const Replanned& then) const;
  Replanned BaseOfDevices(std::vector<v1::DevicePrice>* prices) const;
  v1::DeviceGain Gain(const std::string& kind, const Replanned& base, int* left) const;
  std::string NameOf(const std::string& kind) const;
  v1::ValueUnit GainUnit() const;

  const OutlookQuestion ask_;
};

// Adds to plan->device_prices. What was planned again for every kind replaces what the search
// estimated.
void AddDevicePrices(const Outlook& outlook, v1::DeploymentPlan* plan);

}  // namespace tessera::scheduler
