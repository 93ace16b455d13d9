#include "scheduler/planner/report/idle_devices.h"

#include <vector>

#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr int kMostNamed = 6;  // machines of a kind

struct OfKind {
  std::string kind, machines;
  int devices = 0, machine_count = 0;
};

// By pool of the graph.
std::vector<int> IdleOf(const ClusterGraph& graph, const Placement& placement) {
  std::vector<int> idle;
  for (const DevicePool& pool : graph.pools()) idle.push_back(pool.count);
  for (const PlacedReplica& replica : placement.replicas) {
    for (const LayoutStage& stage : replica.stages)
      idle[static_cast<size_t>(stage.pool)] -= stage.width;
  }
  return idle;
}

}  // namespace

std::map<std::string, int> IdleByKind(const ClusterGraph& graph, const Placement& placement) {
  const std::vector<int> idle = IdleOf(graph, placement);
  std::map<std::string, int> kinds;
  for (size_t p = 0; p < idle.size(); ++p) {
    if (idle[p] > 0) kinds[graph.pools()[p].spec->kind] += idle[p];
  }
  return kinds;
}

std::string IdleDevicesLine(const ClusterGraph& graph, const Placement& placement, bool searched) {
  const std::vector<DevicePool>& pools = graph.pools();
  const std::vector<int> idle = IdleOf(graph, placement);
  std::vector<OfKind> kinds;  // in the order of the cluster
  for (size_t p = 0; p < pools.size(); ++p) {
    if (idle[p] <= 0) continue;
    size_t k = 0;
    while (k < kinds.size() && kinds[k].kind != pools[p].spec->kind) ++k;
    if (k == kinds.size()) kinds.emplace_back().kind = pools[p].spec->kind;
    kinds[k].devices += idle[p];
    if (++kinds[k].machine_count > kMostNamed) continue;
    kinds[k].machines += StrCat(kinds[k].machines.empty() ? "" : ", ",
                                graph.machines()[static_cast<size_t>(pools[p].machine)].name);
  }
  std::string line;
  for (const OfKind& one : kinds) {
    const int more = one.machine_count - kMostNamed;
    line += StrCat(line.empty() ? "not used: " : ", ", one.devices, " ", one.kind, " (",
                   one.machines, more > 0 ? StrCat(" and ", more, " more") : "", ")");
  }
  if (line.empty() || !searched) return line;
  return StrCat(line, ": no plan was found that serves more with them");
}

}  // namespace tessera::scheduler
