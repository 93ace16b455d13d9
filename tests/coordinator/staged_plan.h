// A small model and plans of it whose replicas have several stages and ranks, for tests of whatever
// carries plans out. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/model.pb.h"
#include "proto/plan.pb.h"

namespace tessera::coordinator {

// 4 query heads on 2 kv heads, 6 layers unless said otherwise.
v1::Model SmallModel(int layers = 6);

// One replica "r0" of role both, of a stage for every entry of `widths`, its layers and every other
// part cut as evenly as they go. Devices are named by stage and rank: s0r0, s0r1, s1r0, ...
v1::DeploymentPlan StagedPlan(const v1::Model& model, const std::vector<int>& widths);

}  // namespace tessera::coordinator
