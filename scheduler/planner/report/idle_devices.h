// Which devices a plan leaves idle. Thread rule: pure function.
#pragma once

#include <map>
#include <string>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// "not used: 8 L4 (south-1, south-2), 2 T4 (west-1)", with the first few machines of each kind;
// empty where all are used. `searched`: other plans were looked for to the end, and the line says
// so.
std::string IdleDevicesLine(const ClusterGraph& graph, const Placement& placement, bool searched);

// How many of each kind are not used; kinds of which all are used are left out.
std::map<std::string, int> IdleByKind(const ClusterGraph& graph, const Placement& placement);

}  // namespace tessera::scheduler
