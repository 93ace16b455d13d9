// What holders of overlapping ranges of layers serve together, each request on a route of its own
// through any of them that have all layers one after another.
//
// Model, that of replica_cost where the holders form one pipeline: all run in the same period P, a
// holder one step per period with the rows of every route that passes it; a layer costs what the
// rows that take it there cost. A row on a route of S holders comes back after R = max(S, seconds
// along the route / P) periods, so that TPOT = R*P and R rows of its KV are held; output = rows per
// period / P. Limits: P of every holder and hop, KV bytes and prompt rows of every holder, rows in
// flight per first holder, links that several hops share, TPOT of every route. Idea: routes are
// listed, short ones first; for a number of rows a linear program (layer times as the chords of
// their curve) says which rows take which route for the shortest period; the answer is judged by
// the cost model itself. Source: Helix (ASPLOS 2025), whose requests stay in a holder to its last
// layer and whose maximum flow knows no KV; here a request may leave at any layer where somebody's
// range begins or ends. Replicas that both prefill and decode. Heuristic: no bound. Deterministic.
// Thread rule: pure function.
#pragma once

#include <vector>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// Devices of one pool that hold consecutive layers; `copies` of the like.
struct LayerHolder {
  int pool = 0;  // of the problem's graph
  int width = 1;
  int first_layer = 0;
  int layers = 0;
  int copies = 1;

  int end() const { return first_layer + layers; }
  bool operator==(const LayerHolder&) const = default;
};

struct LayerRoute {
  struct Part {
    int holder = 0;  // index
    int first_layer = 0;
    int layers = 0;
  };
  std::vector<Part> parts;  // in layer order
  double rows = 0;          // that decode, per period
};

struct LayerRouteOptions {
  int most_routes = 160;  // ours: listed, those of few holders first
  int longer_routes = 2;  // ours: holders more than the shortest route has
};

struct RoutedLayers {
  double requests_per_second = 0;  // 0: some holder does not fit, no route, or TPOT out of reach
  double period_seconds = 0;
  std::vector<LayerRoute> routes;  // that are used
};

// Whether the holder's weights and one sequence of maximum length fit its devices.
bool HolderFits(const PlacementProblem& problem, const LayerHolder& holder);

RoutedLayers BestRoutes(const PlacementProblem& problem, const std::vector<LayerHolder>& holders,
                        const LayerRouteOptions& options = {});

}  // namespace tessera::scheduler
