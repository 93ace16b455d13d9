// Which devices a plan leaves idle. Thread rule: pure function.
#pragma once

#include <string>

#include "scheduler/search/problem.h"

namespace tessera::scheduler {

// "not used: 8 L4 (south-1, south-2), 2 T4 (west-1): nothing was found that serves more with them";
// empty where all are used.
std::string IdleDevicesLine(const ClusterGraph& graph, const Placement& placement);

}  // namespace tessera::scheduler
