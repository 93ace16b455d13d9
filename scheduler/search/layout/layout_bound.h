// The best layout of one replica on few devices, with a bound on every layout: for models whose
// layers are alike.
//
// Problem: as in stage_layout. Idea: branch and bound over (number of stages, micro-batches, rows
// b1..b2 per micro-batch). A step's seconds grow with its rows, but less than in proportion, and KV
// grows with rows: so a layout of that many stages with rows in the range and a period p per row
// can hold at most what (p, b2) leaves each stage in seconds and b1 in bytes. stage_sequences says
// whether an order of stages holds all layers so. Where none does at the period of the target, no
// layout of the range reaches it; else the range is halved, best first, and every order that is
// found becomes a layout. Before any test a range is bounded by all devices computing without a
// pause, and by its micro-batches passing the fastest of them. Complexity: tests of
// stage_sequences; a target well above the best layout takes few. Deterministic: budgets count
// tests.
#pragma once

#include <memory>

#include "scheduler/search/layout/stage_layout.h"

namespace tessera::scheduler {

struct LayoutBoundOptions {
  double tolerance = 2e-6;  // of the rate, at which the bound need not get closer
  int max_tests = 20000;
};

struct BoundedLayout {
  Layout layout;     // best that was found; no stages: none above known_rate
  double bound = 0;  // of requests per second: no layout, or known_rate, is above it
};

// Requires problem.model->uniform().
BoundedLayout BoundLayout(const LayoutProblem& problem, const LayoutBoundOptions& options = {});

// The same in instalments. Thread rule: one thread at a time; copies the problem, borrows its model
// and graph.
class LayoutBound {
 public:
  explicit LayoutBound(const LayoutProblem& problem, double tolerance = 2e-6);
  ~LayoutBound();
  LayoutBound(LayoutBound&&) noexcept;

  // A layout that may be a good one (no stages: none), and a bound that is known from elsewhere.
  void StartFrom(const std::vector<LayoutStage>& stages, double bound);

  // Goes on until the bound is at most the target or the best layout, whichever is larger, or so
  // many tests are done; their number. 0: that was so already, or no test brings more.
  int Refine(double target, int tests);

  const Layout& best() const;  // no stages: none above known_rate yet
  double bound() const;

 private:
  class Search;
  std::unique_ptr<Search> search_;
};

}  // namespace tessera::scheduler
