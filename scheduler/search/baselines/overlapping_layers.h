// Placements whose holders have overlapping ranges of layers, each request on a route of its own:
// what the best of them that was found serves, to stand beside a plan of replicas.
//
// Starts: one or two replicas of the plan (or all of them) with the devices that the plan leaves
// idle, the other replicas kept; and, after Helix (ASPLOS 2025), every device group with a range
// that fills half its memory, placed where least stands. From the best of them ranges grow, shrink
// and shift while that gains. Judged by layer_routes, as such without splitting prefill and decode.
// Heuristic: no bound. Budget: placements judged. Deterministic. Thread rule: pure function.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/search/baselines/layer_routes.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

struct OverlappingOptions {
  int most_placements = 48;  // ours: judged
  int most_holders = 64;     // ours: device groups of one network
  LayerRouteOptions routes;
};

struct OverlappingPlacement {
  double requests_per_second = 0;    // of network and kept replicas
  std::vector<size_t> kept;          // replicas of the plan, as they are
  std::vector<LayerHolder> holders;  // of the network
  RoutedLayers routed;
};

struct OverlappingSearch {
  std::optional<OverlappingPlacement> best;  // with ranges that overlap and differ; none was found
  int placements = 0;                        // judged
};

// For a goal of throughput; `chosen` is the plan.
OverlappingSearch SearchOverlapping(const PlacementProblem& problem, const Placement& chosen,
                                    const OverlappingOptions& options = {});

}  // namespace tessera::scheduler
