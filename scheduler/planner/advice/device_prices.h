// What one more device of each kind would bring, by planning again with it in the best place.
//
// The duals that a search leaves (plan.device_prices says "estimate: the dual") are of a relaxed
// program; these are differences between two plans of the same search. Places tried: beside the
// devices of that kind in every machine of another shape, and as a machine of its own at every
// site. A search that is not exact may find less with more: said as nothing. All these plans are
// judged by what is predicted: a simulation of each, which takes longer than most searches, would
// change which of their plans is chosen, and by that what they promise, at random. So where the
// plan itself was chosen by simulation gains are counted from the one that is predicted to be best.
// Cost: one search per place, and one more. Thread rule: pure function; deterministic.
#pragma once

#include "proto/plan.pb.h"
#include "scheduler/planner/planner_input.h"

namespace tessera::scheduler {

struct DevicePriceOptions {
  int most_searches = 24;   // in all
  int most_devices = 2000;  // of a cluster that is planned again
};

// Adds to plan->device_prices. `input` and `options` are those that the plan was made with;
// options.watch stops it early.
void AddDevicePrices(const PlannerInput& input, const PlannerOptions& options,
                     const DevicePriceOptions& prices, v1::DeploymentPlan* plan);

// What a plan is judged by, in requests per second: what is promised.
double PromisedRate(const v1::DeploymentPlan& plan);

// Its unit: requests per second, where the plan must survive it those that the loss of a machine
// leaves.
v1::ValueUnit PromisedUnit(const v1::DeploymentPlan& plan);

}  // namespace tessera::scheduler
