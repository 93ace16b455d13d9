// What would become of a cluster that several models share with one more device, faster links, and
// where assumptions are off.
//
// With other devices the deal is made again, by the same search and for the same weights; of faster
// links and other assumptions the layouts there are are judged again. A deal is a heuristic: one
// with more that comes out lower counts as nothing. Everything is the planner itself on changed
// documents. Thread rule: pure function; deterministic. Cost: a layout is judged again in
// milliseconds, a deal made again takes as long as the first.
#pragma once

#include <vector>

#include "scheduler/planner/shared/shared_cluster.h"

namespace tessera::scheduler {

// Adds to device_prices, sensitivity and link_prices of every plan, the same to all. `inputs`
// and `options` are those that the plans were made with; options.watch stops it early, which is
// said. `search_again`: deals again also where that takes long, and where assumptions are off.
void AddSharedOutlook(const std::vector<PlannerInput>& inputs, const PlannerOptions& options,
                      bool search_again, SharedPlans* shared);

}  // namespace tessera::scheduler
