// How much a plan depends on what was assumed: the value of its layout when efficiencies, output
// lengths and links are off, what more bandwidth on each link would bring, which of these would
// change the choice (where the cluster is small, else with searches again), and with searches again
// what other choices lost.
//
// Prices of devices and links say how they were found: "estimate: the dual" (left by the search),
// "this layout" (the plan judged with the wider link), or "planned again" (a true difference: for
// devices also where the cluster is small).
//
// Everything is the planner itself on changed documents, so it holds for every search and device.
// Thread rule: pure functions. Cost: a layout is judged again in milliseconds; with `search_again`,
// and up to 12 devices, the whole search runs again for each change.
#pragma once

#include "proto/plan.pb.h"
#include "scheduler/planner/planner_input.h"

namespace tessera::scheduler {

// Adds the lines plan->device_prices, plan->sensitivity, plan->link_prices and, with
// `search_again`, plan->alternatives. `input` and `options` are those that the plan was made with;
// options.watch stops it early.
void AddSensitivity(const PlannerInput& input, const PlannerOptions& options, bool search_again,
                    v1::DeploymentPlan* plan);

}  // namespace tessera::scheduler
