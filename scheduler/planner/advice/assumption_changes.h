// What a plan takes for granted, made better and worse.
//
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <vector>

#include "scheduler/planner/planner_input.h"

namespace tessera::scheduler {

struct AssumptionChange {
  v1::Assumed assumed;
  double factor;  // by which it is multiplied
  std::function<void(PlannerInput*)> apply;
};

// Efficiencies, lengths of outputs, links: each off to both sides.
std::vector<AssumptionChange> AssumptionChanges();

}  // namespace tessera::scheduler
