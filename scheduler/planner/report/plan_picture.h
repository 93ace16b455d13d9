// A plan as a picture (SVG) for people: sites, machines, devices, which replica and stage each
// device serves and how full its memory is, what the links carry, and what requests wait for.
//
// Sites are side by side, their machines below each other, four to a column. A device's colour is
// its replica's, grey is idle; devices of one stage beside each other have one frame. Lines are
// links that carry anything (link_bundles.h): their width and colour are their load, their number
// refers to the table below, which has their latency. Thread rule: pure function, deterministic.
#pragma once

#include <string>

#include "proto/plan.pb.h"
#include "scheduler/input/cluster_graph.h"

namespace tessera::scheduler {

std::string PlanPicture(const v1::DeploymentPlan& plan, const ClusterGraph& graph);

}  // namespace tessera::scheduler
