// Which devices a plan leaves idle. Thread rule: pure function.
#pragma once

#include <string>

#include "scheduler/search/problem.h"

namespace tessera::scheduler {

// "not used: 8 L4 (south-1, south-2), 2 T4 (west-1)", with the first few machines of each kind;
// empty where all are used. `searched`: other plans were looked for to the end, and the line says
// so.
std::string IdleDevicesLine(const ClusterGraph& graph, const Placement& placement, bool searched);

}  // namespace tessera::scheduler
