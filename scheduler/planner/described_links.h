// The links of a description by the names that people read, each to be changed in place.
//
// Thread rule: pure functions. The pointers live as long as the input is not changed otherwise.
#pragma once

#include <string>
#include <vector>

#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "scheduler/planner/planner.h"

namespace tessera::scheduler {

struct DescribedLink {
  std::string name;
  v1::Link* link = nullptr;
  double load = 0;  // part of it that the plan uses; 0: nothing; counted only by LinksByLoad
};

// Every link that the description gives; not those that cards have by nature.
std::vector<DescribedLink> LinksOf(v1::Cluster* cluster);

// These and the peer links of kinds wherever replicas of the plan depend on them, the fullest
// first. Links inside machines have no load of their own in a plan: where devices of one replica
// meet there they count as half full. Where nothing leaves machines, only those inside.
std::vector<DescribedLink> LinksByLoad(const v1::DeploymentPlan& plan, PlannerInput* input);

}  // namespace tessera::scheduler
