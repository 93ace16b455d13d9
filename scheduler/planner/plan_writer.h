// A placement as a deployment plan: replicas, routing, predicted figures, links, notes, choices
// that lost, assumptions. Nothing is searched or simulated here, and nothing is checked.
//
// Thread rule: pure function, deterministic.
#pragma once

#include <vector>

#include "proto/plan.pb.h"
#include "scheduler/planner/planning_problem.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// What is known of a placement beside itself.
struct WrittenContext {
  // What splitting everywhere would serve; null: it was not sought.
  const Placement* split_everywhere = nullptr;
  std::vector<v1::Note> preferred_notes;  // what limits and simplicity cost
  bool simulates = false;                 // the plan is simulated after it was written
};

v1::DeploymentPlan WritePlan(const PlanningProblem& planning, const WrittenContext& context,
                             const Placement& placement);

// Its replicas, routing and predicted figures alone, of a problem like that of `planning`, maybe
// under another limit of TPOT: for who judges several.
// Replicas, routing and the rate that they serve, links counted.
v1::DeploymentPlan WriteServedPlan(const PlanningProblem& planning, const PlacementProblem& problem,
                                   const Placement& placement);

// And latencies, and what links carry.
v1::DeploymentPlan WriteBarePlan(const PlanningProblem& planning, const PlacementProblem& problem,
                                 const Placement& placement);

}  // namespace tessera::scheduler
