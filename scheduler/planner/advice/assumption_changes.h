// What a plan takes for granted, made better and worse, and its layout judged again.
//
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "scheduler/planner/planner_input.h"

namespace tessera::scheduler {

inline constexpr int kReplannedUpTo = 12;      // devices of a cluster that is planned again unasked
inline constexpr double kOtherChoice = 1.001;  // another choice must be better by this

struct AssumptionChange {
  v1::Assumed assumed;
  double factor;  // by which it is multiplied
  std::function<void(PlannerInput*)> apply;
};

// Efficiencies, lengths of outputs, links: each off to both sides.
std::vector<AssumptionChange> AssumptionChanges();

// Options that judge the layout of `plan` instead of searching one.
PlannerOptions JudgingOf(const PlannerOptions& options, const v1::DeploymentPlan& plan);

// Why such a layout does not work, in a line.
std::string WhyNotKept(const absl::Status& status);

}  // namespace tessera::scheduler
