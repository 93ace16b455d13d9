// How far from the best a plan can be, in words. Thread rule: pure functions.
#pragma once

#include <string>

#include "proto/plan.pb.h"

namespace tessera::scheduler {

// "proved optimum: ...", "heuristic, not proved to be the best: ...", "heuristic: ...", or of a
// cluster that models share "at most ...".
std::string BoundLine(const v1::DeploymentPlan& plan);

// The bound of a deal of devices to several models: "at most 1.200 times the asked rates, whatever
// the deal".
std::string SharedBoundText(const v1::SharedBound& bound);

}  // namespace tessera::scheduler
