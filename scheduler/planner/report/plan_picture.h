// A plan as a picture (SVG) for people: sites, machines, devices, which replica and stage each
// device serves and how full its memory is, and what the links carry.
//
// Sites stand side by side, their machines below each other, four to a column. A device's colour is
// its replica's, grey is idle. Lines are links that carry anything: their width and colour are
// their load, their number refers to the table below. Thread rule: pure function, deterministic.
#pragma once

#include <string>

#include "proto/plan.pb.h"
#include "scheduler/input/cluster_graph.h"

namespace tessera::scheduler {

std::string PlanPicture(const v1::DeploymentPlan& plan, const ClusterGraph& graph);

}  // namespace tessera::scheduler
