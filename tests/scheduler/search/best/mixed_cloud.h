// mixed_cloud_32.yaml with Llama-2-70B and conversations of which 90 % shall begin within 3 s and
// go on every 150 ms.
#pragma once

#include "scheduler/search/best/goodput_columns.h"
#include "scheduler/search/layout/problem.h"
#include "tests/scheduler/cost/shapes.h"

namespace tessera::tests {

// Not copied: the problem borrows the other two.
struct MixedCloud {
  scheduler::ModelShape model = Llama2_70B();
  scheduler::ClusterGraph graph;
  scheduler::PlacementProblem problem;

  MixedCloud();
  MixedCloud(const MixedCloud&) = delete;
  MixedCloud& operator=(const MixedCloud&) = delete;
};

// What parts of its pools serve, dealt to replicas that do not split; `columns` are offered them.
scheduler::Placement PlacementOfParts(const MixedCloud& cloud, scheduler::GroupLayouts* groups,
                                      scheduler::GoodputColumns* columns);

}  // namespace tessera::tests
