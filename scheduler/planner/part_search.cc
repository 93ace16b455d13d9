#include "scheduler/planner/part_search.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_format.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {

DeviceCounts DevicesOf(const PlacementProblem& problem,
                       const std::vector<PlacedReplica>& replicas) {
  DeviceCounts used(problem.graph->pools().size(), 0);
  for (const PlacedReplica& replica : replicas) {
    const DeviceCounts by_one = DevicesByPool(replica.stages, used.size());
    for (size_t p = 0; p < used.size(); ++p) used[p] += by_one[p];
  }
  return used;
}

namespace {

// The machine that a pool stands in: of several nodes of one machine the first.
int HostOf(const PlacementProblem& problem, int pool) {
  const int machine = problem.graph->pools()[static_cast<size_t>(pool)].machine;
  return problem.graph->machines()[static_cast<size_t>(machine)].host;
}

}  // namespace

DeviceCounts AllDevices(const PlacementProblem& problem) {
  DeviceCounts counts;
  for (const DevicePool& pool : problem.graph->pools()) counts.push_back(pool.count);
  return counts;
}

DeviceCounts OfMachine(const PlacementProblem& problem, const DeviceCounts& wanted, int machine) {
  DeviceCounts counts = wanted;
  for (size_t p = 0; p < counts.size(); ++p) {
    if (HostOf(problem, static_cast<int>(p)) != machine) counts[p] = 0;
  }
  return counts;
}

std::vector<int> MachinesOf(const PlacementProblem& problem, const PlacedReplica& replica) {
  std::vector<int> machines;
  for (const LayoutStage& stage : replica.stages) {
    ForEachPart(stage,
                [&](const LayoutPart& part) { machines.push_back(HostOf(problem, part.pool)); });
  }
  std::sort(machines.begin(), machines.end());
  machines.erase(std::unique(machines.begin(), machines.end()), machines.end());
  return machines;
}

std::string PartSearch::KeyOf(const DeviceCounts& part) const {
  const ClusterGraph& graph = *problem_.graph;
  std::string key;
  int machine = -1;
  std::vector<int> machines;
  for (size_t p = 0; p < part.size(); ++p) {
    if (part[p] == 0) continue;
    const DevicePool& pool = graph.pools()[p];
    if (pool.machine != machine) {
      machine = pool.machine;
      machines.push_back(machine);
      key += "/";
    }
    absl::StrAppendFormat(&key, "%p,%d,%g;", static_cast<const void*>(pool.spec), part[p],
                          pool.price_usd_per_hour);
  }
  // Uplinks and sites tell large parts apart; like links are enough for those of a few machines.
  constexpr size_t kByLinks = 3;
  if (machines.size() > kByLinks) {
    for (const int m : machines) key += StrCat("|", m);
    return key;
  }
  for (const int from : machines) {
    const MachineNode& node = graph.machines()[static_cast<size_t>(from)];
    if (machines.size() > 1)
      absl::StrAppendFormat(&key, "|%s,%g", graph.UplinkSite(from),
                            node.uplink ? node.uplink->bytes_per_second : 0);
    for (const int to : machines) {
      const LinkSpec& link = graph.Between(from, to);
      absl::StrAppendFormat(&key, ",%g,%g,%g,%g", link.bytes_per_second, link.latency_seconds,
                            link.incast_threshold, link.incast_seconds_per_byte);
    }
  }
  return key;
}

absl::StatusOr<Placement> PartSearch::On(const DeviceCounts& part) {
  const std::string key = KeyOf(part);
  auto known = known_.find(key);
  std::vector<int> pools;
  for (size_t p = 0; p < part.size(); ++p) {
    if (part[p] > 0) pools.push_back(static_cast<int>(p));
  }
  if (known == known_.end()) {
    if (pools.empty()) return absl::ResourceExhaustedError("no devices are left");
    if (spent() || problem_.watch.Stopped())
      return absl::ResourceExhaustedError("no more searches of parts of the cluster are left");
    --left_;
    left_devices_ -= std::accumulate(part.begin(), part.end(), int64_t{0});
    ++searches_;
    std::vector<int> kept;
    const ClusterGraph graph = problem_.graph->Part(part, &kept);
    PlacementProblem problem = problem_;
    problem.graph = &graph;
    problem.goal = Goal::kThroughput;
    problem.prove = false;
    absl::StatusOr<Placement> placement = search_(problem);
    known = known_.emplace(key, Known{kept, std::move(placement)}).first;
    if (known->second.placement.ok()) {
      for (PlacedReplica& replica : known->second.placement->replicas) {
        for (LayoutStage& stage : replica.stages)
          stage.pool = kept[static_cast<size_t>(stage.pool)];
        replica.device_index.clear();
      }
    }
  }
  absl::StatusOr<Placement> placement = known->second.placement;
  if (!placement.ok() || pools == known->second.pools) return placement;
  // Found on other, like machines.
  std::map<int, int> moved;
  for (size_t i = 0; i < pools.size(); ++i) moved[known->second.pools[i]] = pools[i];
  for (PlacedReplica& replica : placement->replicas) {
    for (LayoutStage& stage : replica.stages) stage.pool = moved.at(stage.pool);
  }
  return placement;
}

}  // namespace tessera::scheduler
