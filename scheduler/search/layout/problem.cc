#include "scheduler/search/layout/problem.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace tessera::scheduler {
namespace {

constexpr double kRoundingOfBound = 1e-6;

}  // namespace

LayoutProblem OnWholeGraph(const PlacementProblem& problem, Role role) {
  LayoutProblem layout;
  layout.model = problem.model;
  layout.graph = problem.graph;
  for (const DevicePool& pool : problem.graph->pools())
    layout.pools.push_back({pool.spec, pool.machine, pool.count});
  layout.role = role;
  return layout;
}

ReplicaSpec SpecOf(const PlacementProblem& problem, const PlacedReplica& replica) {
  // On the pools that it uses: large clusters have thousands.
  LayoutProblem layout;
  layout.model = problem.model;
  layout.graph = problem.graph;
  layout.role = replica.role;
  std::vector<LayoutStage> stages = replica.stages;
  const auto used = [&](int index) {
    const DevicePool& pool = problem.graph->pools()[static_cast<size_t>(index)];
    layout.pools.push_back({pool.spec, pool.machine, pool.count});
    return static_cast<int>(layout.pools.size()) - 1;
  };
  for (LayoutStage& stage : stages) stage = OnPools(std::move(stage), used);
  return MakeReplica(layout, stages);
}

absl::Status CheckRoom(const PlacementProblem& problem) {
  constexpr double kGib = 1073741824.0;
  const MemoryOptions& memory = problem.options.memory;
  const double longest = LeastKvTokens(Role::kDecode, MomentsOf(problem.samples), problem.options);
  double usable = 0;
  for (const DevicePool& pool : problem.graph->pools()) {
    usable += pool.count * std::max(0.0, pool.spec->memory_bytes * memory.utilisation -
                                             memory.runtime_reserve_bytes);
  }
  const double weights = TotalWeightBytes(*problem.model);
  const double kv = SequenceBytes(*problem.model, longest);
  if (weights + kv <= usable) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("%s does not fit: weights %.2f GiB and KV of one sequence of %.0f tokens "
                      "%.2f GiB, all devices together offer %.2f GiB (%g %% of the memory of each, "
                      "less %.2f GiB for the runtime): %.2f GiB are missing",
                      problem.model->name, weights / kGib, longest, kv / kGib, usable / kGib,
                      100 * memory.utilisation, memory.runtime_reserve_bytes / kGib,
                      (weights + kv - usable) / kGib));
}

bool Splits(const Placement& placement) {
  return std::any_of(placement.replicas.begin(), placement.replicas.end(),
                     [](const PlacedReplica& replica) { return replica.role != Role::kBoth; });
}

bool HasMixedStage(const Placement& placement) {
  return std::any_of(
      placement.replicas.begin(), placement.replicas.end(), [](const PlacedReplica& replica) {
        return std::any_of(replica.stages.begin(), replica.stages.end(),
                           [](const LayoutStage& stage) { return stage.mix != nullptr; });
      });
}

int DevicesUsed(const Placement& placement) {
  int devices = 0;
  for (const PlacedReplica& replica : placement.replicas) {
    for (const LayoutStage& stage : replica.stages) devices += WidthOf(stage);
  }
  return devices;
}

double BoundOver(double bound, double requests_per_second) {
  if (bound <= 0 || bound < requests_per_second * (1 - kRoundingOfBound)) return 0;
  return std::max(bound, requests_per_second);
}

v1::Note LosingSplitNote(bool splits, double requests_per_second, double usd_per_hour) {
  v1::Note note;
  note.mutable_other_split()->set_splits(splits);
  note.mutable_other_split()->set_requests_per_second(requests_per_second);
  note.mutable_other_split()->set_usd_per_hour(usd_per_hour);
  return note;
}

}  // namespace tessera::scheduler
