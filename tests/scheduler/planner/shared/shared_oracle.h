// What models that share a cluster can reach at most, by trying every way to deal the devices.
//
// Thread rule: pure functions; rates that were found are kept, for one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "scheduler/planner/planner.h"

namespace tessera::tests {

// Four devices, of two kinds in one machine.
inline constexpr char kMixed[] = R"(
machines:
- {name: a, devices: [{kind: A40}, {kind: L4, count: 2}]}
- {name: b, devices: [{kind: L4}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}
)";
// More sets of devices than are dealt one by one.
inline constexpr char kMany[] = R"(
machines:
- {name: a, devices: [{kind: A100-40, count: 4}]}
- {name: b, devices: [{kind: A40, count: 4}]}
- {name: c, devices: [{kind: L4, count: 4}]}
- {name: d, devices: [{kind: L4, count: 4}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}
)";

// 1000 prompt tokens, 200 output tokens; 0 requests/s: no rate is given.
scheduler::PlannerInput SharedInput(const std::string& cluster, const std::string& model,
                                    double requests_per_second = 0);

// Devices of each group, in the order of the description.
std::vector<int> GroupCounts(const v1::Cluster& cluster);

// Requests/s of the best plan, by this search, on so many devices of each group; 0: there is none.
double RateOn(scheduler::PlannerInput input, const std::vector<int>& counts,
              const std::string& search);

// The best common part of the weights over every way to deal single devices to two models, each
// part planned by the search. `wanted`: only ways in which the first model has such counts.
double BestTheta(const scheduler::PlannerInput& a, const scheduler::PlannerInput& b,
                 double weight_a, double weight_b, const std::string& search = "exact",
                 const std::function<bool(const std::vector<int>&)>& wanted = {});

}  // namespace tessera::tests
