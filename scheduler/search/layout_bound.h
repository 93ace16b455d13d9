// The best layout of one replica on few devices, with a bound on every layout: for models whose
// layers are alike.
//
// Problem: as in stage_layout. Idea: branch and bound over (number of stages, micro-batches, rows
// b1..b2 per micro-batch). A step's seconds grow with its rows, but less than in proportion, and KV
// grows with rows: so a layout of that many stages with rows in the range and a period p per row
// can hold at most what (p, b2) leaves each stage in seconds and b1 in bytes. Two programs over the
// devices used say whether the layers fit: the most layers that S stages hold, and the least
// seconds in which all layers run, hops at their best, which must be within the micro-batches'
// periods. Where they do not fit at the period of the best layout known, no layout of the range is
// better; else the range is halved. Complexity: tests * devices' states * S * widths. The links'
// order inside a pipeline is relaxed, so the bound may stay above the best layout; it says by how
// much. Deterministic. Thread rule: pure function; borrows its problem.
#pragma once

#include "scheduler/search/stage_layout.h"

namespace tessera::scheduler {

struct LayoutBoundOptions {
  double tolerance = 1e-5;  // of the rate, at which the bound need not get closer
  int max_tests = 20000;
};

struct BoundedLayout {
  Layout layout;     // best that was found; no stages: none above known_rate
  double bound = 0;  // of requests per second: no layout, or known_rate, is above it
};

// Requires problem.model->uniform().
BoundedLayout BoundLayout(const LayoutProblem& problem, const LayoutBoundOptions& options = {});

}  // namespace tessera::scheduler
