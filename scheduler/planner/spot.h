// Renting a part of a plan's machines at the spot price, where they may be taken away.
//
// Of each machine of the description that has a spot price the plan needs some number, the target;
// `share` of target + extra are hoped for as spot machines, and the rest is rented on demand:
//   on demand = clamp(target + extra - ready spot, 0, target).
// So all that is rented may be less than target + extra (few of them spot), never less than the
// target. There are no more than `available` (1 where the description gives none) of a machine, and
// no more of them as spot than `spot_available`: extra counts as far as these leave any, and what
// is cut is said.
// Machines are rented whole, and what so many of them cost together is what searches count; their
// relaxations count the price of a machine that is spot for `share` of its time, which is never
// more. Source: SkyServe's fallback policy. Thread rule: pure functions. Units: USD per hour.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "scheduler/input/cluster_graph.h"

namespace tessera::scheduler {

struct SpotOptions {
  double share = 0;  // 0..1 of target + extra
  int extra = 0;     // of each machine with a spot price, beyond the target
};

// InvalidArgument naming the flag or the key of the description.
absl::Status CheckSpot(const v1::Cluster& cluster, const SpotOptions& options,
                       std::string_view file);

int OnDemand(int target, int extra, int ready_spot);

// Prices of single machines as relaxations should see them.
v1::Cluster WithSpotPrices(const v1::Cluster& cluster, const SpotOptions& options);
// What so many of each machine cost together, in a graph of the cluster with those prices.
void PriceSpot(const v1::Cluster& cluster, const SpotOptions& options, ClusterGraph* graph);

// Mixes of the machines that are used (by their names in the graph: "h100x2.3"); only those with a
// spot price, and none where the share is 0.
std::vector<v1::SpotMix> SpotMixes(const v1::Cluster& cluster, const SpotOptions& options,
                                   const std::set<std::string>& used);

// Whether a machine of the graph is one of these.
bool IsIn(const std::vector<v1::SpotMix>& mixes, const std::string& machine);

// As assumptions say it.
v1::SpotTerms SpotTermsOf(const SpotOptions& options);

}  // namespace tessera::scheduler
