// What no plan could serve more than even if each class of requests went to replicas of its own
// choice: the bound of configuration_program for plans that route by class.
//
// Problem: a column is a legal replica with a mix of request kinds that it serves, z_w of kind w
// per second: its rate by the cost model, that mix being its workload. Maximise theta: in each
// phase columns serve theta * share of every kind, on the devices there are, within the budget.
// From any duals lambda (by kind and phase, of sum 1 by shares), pi (devices) and mu (budget): with
// kappa the highest (sum_w lambda_w * z_w) / (pi of its devices + mu of its cost) of any legal
// column,
//   U = kappa * (sum_k pi_k * n_k + mu * budget)
// is at least what any plan serves, however it routes: each of its replicas serves at most kappa
// times its price, and what all serve is worth theta at least. Idea: kappa is the highest over a
// simplex of mixes by branch and bound: of a cell of mixes replica_pricing certifies a load that is
// below all of them (request_mixes.h), the cell with the highest bound is halved until it is near
// what the columns reach. Sending all classes everywhere in one mix is one of these plans, so U is
// at least the value of any plan. Deterministic: budgets count rounds, cells and boxes. Thread
// rule: pure function.
#pragma once

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

inline constexpr size_t kMaxRoutedKinds = 3;  // of unlike lengths; cells grow with their power

struct ClassRoutingBound {
  double upper_bound = 0;  // of requests per second; 0: none
  double relaxed = 0;      // what the columns that were found serve, in parts of replicas
  size_t kinds = 0;        // classes of unlike lengths
};

// Of the throughput, for goals kThroughput and kBudget. No bound where classes have fewer than two
// or more than kMaxRoutedKinds unlike lengths, or a class has nothing to compute in a phase.
ClassRoutingBound BoundByRouting(const PlacementProblem& problem);

}  // namespace tessera::scheduler
