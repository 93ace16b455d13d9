// A seeded placement problem of a few devices on which every search can be tried.
#pragma once

#include "scheduler/search/layout/problem.h"
#include "tests/scheduler/search/layout_enumerator.h"

namespace tessera::tests {

// Borrows *instance. Odd seeds have a model of four layers: devices hold more than a share, so
// there are several replicas.
inline scheduler::PlacementProblem PlacementInstance(int seed, LayoutInstance* instance) {
  MakeLayoutInstance(seed, 5, 8, instance);
  if (seed % 2 == 1) instance->model.layers = 4;
  scheduler::PlacementProblem problem;
  problem.model = &instance->model;
  problem.graph = &instance->graph;
  problem.samples = {{500.0 + 10 * (seed % 7), 100, 1}};
  problem.options = instance->problem.options;
  return problem;
}

}  // namespace tessera::tests
