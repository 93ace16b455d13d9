// Links of a plan that are drawn as one line: there and back between two machines, and all between
// two sites where several pairs of machines use them. Thread rule: pure function, deterministic.
#pragma once

#include <string>
#include <vector>

#include "proto/plan.pb.h"
#include "scheduler/input/cluster_graph.h"

namespace tessera::scheduler {

struct LinkBundle {
  // Machines, or sites, of the first link; `to` is empty for an uplink, which stands alone.
  std::string from, to;
  bool sites = false;
  std::vector<const v1::LinkLoad*> there, back;  // borrowed; the busiest first
  double latency_seconds = 0;                    // one way; of sites: the longest

  // The part of its capacity that the busiest link carries.
  double load() const;
};

double LoadOf(const v1::LinkLoad& link);

// In the order of the plan's links. Links of machines that the graph has not are left out.
std::vector<LinkBundle> LinkBundles(const v1::DeploymentPlan& plan, const ClusterGraph& graph);

// "a to b: 0.120 of 25 Gbit/s, 0.5 %; back 0.100, 0.4 %; 0.05 ms one way".
std::string BundleText(const LinkBundle& bundle);

}  // namespace tessera::scheduler
