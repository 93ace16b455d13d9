// How large the common part of several models' rates can be at most, whatever the deal.
//
// Problem: theta is at least the largest for which the devices can be dealt so that every model i
// serves theta * weight_i; wanted is a bound from above. Idea: of any prices pi of devices, by
// class, and any phase values lambda_i of a model, with kappa_i the highest (rate * value of the
// role) / (price of its devices) of any legal replica of model i, a part of the cluster serves at
// most kappa_i times its price. So theta * sum_i weight_i / kappa_i <= sum_k pi_k * n_k. kappa
// comes over-estimated from the pricing of replicas (search/replica_pricing), so the bound holds at
// any prices; good ones are the duals of the linear program that deals the columns of all models at
// once, and pricing finds its columns. It bounds the layouts that the search looks at, and links
// between replicas are left out. Above 100 devices all sites count as one, as in the search.
// Deterministic: budgets count rounds and boxes. Thread rule: pure function. Cost: a few pricings
// of every role and site, by model.
#pragma once

#include <vector>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

struct SharedBound {
  double theta = 0;  // no deal serves more; 0: there is no bound
  std::vector<double>
      device_prices;  // by pool of the graph: theta that a device is worth; estimate
};

// `problems` are on graphs of like pools, their watch stops it early: then there is the bound of
// the rounds until then. `weights`: requests/s that theta is a multiple of.
SharedBound BoundShared(const std::vector<const PlacementProblem*>& problems,
                        const std::vector<double>& weights);

}  // namespace tessera::scheduler
