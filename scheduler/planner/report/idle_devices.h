// Which devices a plan leaves idle. Thread rule: pure function.
#pragma once

#include <map>
#include <string>

#include "proto/plan.pb.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// Kinds with devices that are not used, with the first few machines of each; none where all are
// used. `searched`: other plans were looked for to the end.
v1::IdleDevices IdleDevicesOf(const ClusterGraph& graph, const Placement& placement, bool searched);

// How many of each kind are not used; kinds of which all are used are left out.
std::map<std::string, int> IdleByKind(const ClusterGraph& graph, const Placement& placement);

}  // namespace tessera::scheduler
