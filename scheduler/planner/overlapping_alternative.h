// The alternative of holders whose ranges of layers overlap, each request on a route of its own,
// as a line beside a plan: what it would serve, won or lost and by how much.
//
// It can be valued, not carried out: a plan's replicas share no device. Heuristic, no bound. Thread
// rule: pure function, deterministic. Cost: see kMostPlacements in the source.
#pragma once

#include <string>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// For DeploymentPlan.alternatives; empty where the goal is not throughput, for which alone it is
// valued, or answers have no more than one token.
std::string OverlappingLine(const PlacementProblem& problem, const Placement& chosen);

}  // namespace tessera::scheduler
