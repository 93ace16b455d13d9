// What 10 Gbit/s more on a link would bring, tried link by link, the fullest first.
//
// Thread rule: pure function. Cost: the layout is judged once for each of up to 40 links; with
// `search_again` a search for each of the first few besides.
#pragma once

#include "proto/plan.pb.h"
#include "scheduler/planner/planner.h"

namespace tessera::scheduler {

// Adds lines to plan->link_prices. `judging` judges the plan's layout, `options` search again;
// options.watch stops it early.
void AddLinkPrices(const PlannerInput& input, const PlannerOptions& judging,
                   const PlannerOptions& options, bool search_again, v1::DeploymentPlan* plan);

}  // namespace tessera::scheduler
