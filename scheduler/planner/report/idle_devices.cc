#include "scheduler/planner/report/idle_devices.h"

#include <vector>

namespace tessera::scheduler {
namespace {

constexpr int kMaxNamed = 6;  // machines of a kind

// By pool of the graph.
std::vector<int> IdleOf(const ClusterGraph& graph, const Placement& placement) {
  std::vector<int> idle;
  for (const DevicePool& pool : graph.pools()) idle.push_back(pool.count);
  for (const PlacedReplica& replica : placement.replicas) {
    const std::vector<int> used = DevicesByPool(replica.stages, idle.size());
    for (size_t p = 0; p < idle.size(); ++p) idle[p] -= used[p];
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

v1::IdleDevices IdleDevicesOf(const ClusterGraph& graph, const Placement& placement,
                              bool searched) {
  const std::vector<DevicePool>& pools = graph.pools();
  const std::vector<int> idle = IdleOf(graph, placement);
  v1::IdleDevices out;
  out.set_searched(searched);
  for (size_t p = 0; p < pools.size(); ++p) {
    if (idle[p] <= 0) continue;
    const std::string& kind = pools[p].spec->kind;
    int k = 0;
    while (k < out.kinds_size() && out.kinds(k).kind() != kind) ++k;
    if (k == out.kinds_size()) out.add_kinds()->set_kind(kind);
    v1::IdleKind& one = *out.mutable_kinds(k);
    one.set_devices(one.devices() + idle[p]);
    if (one.machines_size() < kMaxNamed) {
      one.add_machines(graph.machines()[static_cast<size_t>(pools[p].machine)].name);
    } else {
      one.set_more_machines(one.more_machines() + 1);
    }
  }
  return out;
}

}  // namespace tessera::scheduler
