// Other roles and routing shares for the replicas of a plan that runs, where requests are not those
// that it was made for. Stages, shares and sizes stay, so no worker reads weights.
//
// Idea (the light rescheduling of ThunderServe, arXiv 2502.09334): an assignment of roles is judged
// by the planner's own code, as a layout that is given, which brings its routing shares. Up to four
// replicas: all assignments. More: from the present roles, and from all replicas doing both, the
// best change of one or two roles, as long as there is a better one. The best three and the running
// plan are then simulated with the sizes that workers have, where the simulator knows their layout.
//
// Thread rule: pure functions. Deterministic. Units: requests per second, seconds.
#pragma once

#include "absl/status/statusor.h"
#include "proto/plan.pb.h"
#include "scheduler/planner/planner_input.h"
#include "scheduler/planner/preference.h"

namespace tessera::scheduler {

struct RoleChoice {
  // The best that was found; the running one where none is better. Replicas keep their order, names
  // and sizes.
  v1::DeploymentPlan plan;
  PlanFigures figures;    // of `plan`, for the input's workload
  PlanFigures running;    // of the running plan, with the shares that it has
  double gain = 0;        // 0.2: `plan` is worth a fifth more than the running one
  Preference preference;  // by which plans were compared
};

// `running` names devices as input.cluster does. Of `options`, allow_split and require_split say
// which roles there may be, `simulate` false: nothing is simulated. Errors: the planner's, where
// the running layout cannot be judged for the workload.
absl::StatusOr<RoleChoice> BestRoles(const PlannerInput& input, const PlannerOptions& options,
                                     const v1::DeploymentPlan& running);

// What a plan says of itself, by its simulation where there is one.
PlanFigures FiguresOf(const v1::DeploymentPlan& plan);

// How much more the first is worth: 0.2 is a fifth. Where only one of them sustains the asked rate,
// by the rates alone.
double GainOver(const PlanFigures& figures, const PlanFigures& other, const Preference& preference);

}  // namespace tessera::scheduler
