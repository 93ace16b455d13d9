// What 10 Gbit/s more on a link would bring, tried link by link, the fullest first.
//
// Thread rule: pure function. Cost: the layout is judged once for each of up to 40 links; with
// `search_again` a search for each of the first few besides.
#pragma once

#include <functional>
#include <vector>

#include "proto/plan.pb.h"
#include "scheduler/planner/planner_input.h"

namespace tessera::scheduler {

struct LinkQuestion {
  PlannerInput input;       // that describes the links
  v1::DeploymentPlan plan;  // that loads them
  // What the layout is worth, and what a search finds, with a changed input, in `unit`; 0: there is
  // none. `replan` empty: nobody searches again.
  std::function<double(const PlannerInput&)> judge, replan;
  double now = 0;  // what the layout is worth as it is
  v1::ValueUnit unit = v1::VALUE_UNIT_REQUESTS;
  bool shared = false;  // the layouts are those of several models
  SearchWatch watch;    // stops it early
};
std::vector<v1::LinkPrice> LinkPrices(LinkQuestion question);

// Adds to plan->link_prices. `judging` judges the plan's layout, `options` search again;
// options.watch stops it early.
void AddLinkPrices(const PlannerInput& input, const PlannerOptions& judging,
                   const PlannerOptions& options, bool search_again, v1::DeploymentPlan* plan);

}  // namespace tessera::scheduler
