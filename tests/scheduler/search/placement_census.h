// Seeded placement problems of 4-8 devices, 2-4 kinds, 2-3 machines and 8-16 layers, steered so
// that optima of every sort are among them, and what sort an optimum is.
#pragma once

#include "scheduler/search/layout/problem.h"
#include "tests/scheduler/search/placement_enumerator.h"

namespace tessera::tests {

struct CensusInstance {
  scheduler::ModelShape model;
  scheduler::ClusterGraph graph;
  scheduler::PlacementProblem problem;  // borrows model and graph: do not move
};

// By seed modulo 5: devices of uneven memory on slow networks (0), cards that compute beside cards
// that read, with a limit on the time per output token (1, 2), a small model beside stragglers (3),
// anything (4).
// Unlike links: each pair of machines has its own, some in one direction, and some an uplink.
void MakeCensusInstance(int seed, CensusInstance* instance, bool unlike_links = false);

struct PlacementTraits {
  bool asymmetric = false;    // a replica's stages, or two replicas, are unlike
  bool split = false;         // some replicas only prefill, others only decode
  bool idle = false;          // a device is in no replica
  bool even_misfits = false;  // one stage per device, layers as even as they go, has no room
};
PlacementTraits TraitsOf(const scheduler::PlacementProblem& problem,
                         const EnumeratedPlacement& best);

// Whether a search's placement is as good as the best of all, but for rounding, and whether its
// bound proves so: above no better one, and within what the question's own tolerance leaves open.
struct Verdict {
  bool optimal = false;
  bool proved = false;
};
Verdict JudgeFound(const scheduler::Placement& found, const EnumeratedPlacement& best);

}  // namespace tessera::tests
