#include "scheduler/search/layout/assemble.h"

#include <algorithm>

#include "scheduler/search/layout/rate_program.h"
#include "scheduler/search/layout/split_shares.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

// The least part of what is served: less is what solvers leave, or a replica that meets its limits
// next to never.
constexpr double kMinShare = 2e-6;

absl::Status GiveDevices(const PlacementProblem& problem, std::vector<PlacedReplica>* replicas) {
  std::vector<int> used(problem.graph->pools().size(), 0);
  for (PlacedReplica& replica : *replicas) {
    replica.device_index.clear();
    for (const LayoutStage& stage : replica.stages) {
      std::vector<int>& indices = replica.device_index.emplace_back();
      ForEachPart(stage, [&](const LayoutPart& part) {
        for (int rank = 0; rank < part.width; ++rank)
          indices.push_back(used[static_cast<size_t>(part.pool)]++);
      });
    }
  }
  for (size_t p = 0; p < used.size(); ++p) {
    const DevicePool& pool = problem.graph->pools()[p];
    if (used[p] > pool.count) {
      return absl::FailedPreconditionError(StrCat(
          "the placement uses more than the ", pool.count, " ", pool.spec->kind, " of machine ",
          problem.graph->machines()[static_cast<size_t>(pool.machine)].name));
    }
  }
  return absl::OkStatus();
}

// What replicas use is rented; those that share a machine share its price by what its devices are
// worth of it.
void AddRent(const ClusterGraph& graph, Placement* placement) {
  const std::vector<DevicePool>& pools = graph.pools();
  std::vector<int> used(pools.size(), 0);
  std::vector<double> parts(graph.machines().size(), 0);  // of its price, whose devices are used
  for (const PlacedReplica& replica : placement->replicas) {
    for (const LayoutStage& stage : replica.stages) {
      ForEachPart(stage, [&](const LayoutPart& part) {
        const DevicePool& pool = pools[static_cast<size_t>(part.pool)];
        used[static_cast<size_t>(part.pool)] += part.width;
        parts[static_cast<size_t>(pool.machine)] += part.width * pool.price_usd_per_hour;
      });
    }
  }
  placement->usd_per_hour = graph.RentOf(used);
  for (PlacedReplica& replica : placement->replicas) {
    replica.usd_per_hour = 0;
    for (const LayoutStage& stage : replica.stages) {
      ForEachPart(stage, [&](const LayoutPart& part) {
        const DevicePool& pool = pools[static_cast<size_t>(part.pool)];
        const auto machine = static_cast<size_t>(pool.machine);
        const double whole = graph.machines()[machine].price_usd_per_hour;
        const double usd = part.width * pool.price_usd_per_hour;
        replica.usd_per_hour += whole > 0 ? whole * usd / parts[machine] : usd;
      });
    }
  }
}

void DropDust(std::vector<Share>* shares) {
  double served = 0;
  for (const Share& share : *shares) served += share.requests_per_second;
  std::erase_if(*shares,
                [&](const Share& s) { return s.requests_per_second <= kMinShare * served; });
}

}  // namespace

absl::StatusOr<std::vector<Share>> ShareSplit(const PlacementProblem& problem,
                                              const ReplicaJudge& judge,
                                              std::vector<PlacedReplica>* replicas) {
  if (problem.goal == Goal::kGoodput)
    return SharesWithinLimits(problem, judge.attainment(), replicas);
  std::vector<const PlacedReplica*> given;
  for (const PlacedReplica& replica : *replicas) given.push_back(&replica);
  const RateProgram transport = MakeRateProgram(problem, judge.lengths(), given);
  const absl::StatusOr<std::vector<double>> rates = SolveTransport(transport);
  if (!rates.ok()) return rates.status();
  std::vector<Share> shares;
  for (size_t i = 0; i < rates->size(); ++i) {
    const RateProgram::Pair& pair = transport.pairs[i];
    if ((*rates)[i] > 0) shares.push_back({pair.prefill, pair.decode, (*rates)[i], pair.codec});
  }
  return shares;
}

absl::StatusOr<Placement> Assemble(const PlacementProblem& problem,
                                   std::vector<PlacedReplica> replicas) {
  ReplicaJudge judge(problem);
  return Assemble(problem, std::move(replicas), &judge);
}

absl::StatusOr<Placement> Assemble(const PlacementProblem& problem,
                                   std::vector<PlacedReplica> replicas, ReplicaJudge* judge) {
  if (absl::Status s = GiveDevices(problem, &replicas); !s.ok()) return s;
  Placement placement;
  placement.replicas = std::move(replicas);
  AddRent(*problem.graph, &placement);
  for (size_t i = 0; i < placement.replicas.size(); ++i) {
    PlacedReplica& replica = placement.replicas[i];
    replica.rate = judge->RateOf(SpecOf(problem, replica));
    if (replica.role != Role::kBoth || replica.rate.requests_per_second <= 0) continue;
    placement.shares.push_back(
        {static_cast<int>(i), static_cast<int>(i), replica.rate.requests_per_second});
  }
  const absl::StatusOr<std::vector<Share>> split = ShareSplit(problem, *judge, &placement.replicas);
  if (!split.ok()) return split.status();
  placement.shares.insert(placement.shares.end(), split->begin(), split->end());
  DropDust(&placement.shares);
  if (problem.goal == Goal::kGoodput && !split->empty())
    KeepWithinLimits(problem, judge->attainment(), placement.replicas, &placement.shares);
  for (const Share& share : placement.shares)
    placement.requests_per_second += share.requests_per_second;
  return placement;
}

void LeaveOutIdle(const ClusterGraph& graph, Placement* placement) {
  std::vector<bool> busy(placement->replicas.size(), placement->shares.empty());
  for (const Share& share : placement->shares)
    busy[static_cast<size_t>(share.prefill)] = busy[static_cast<size_t>(share.decode)] = true;
  std::vector<int> index(busy.size(), 0);
  std::vector<PlacedReplica> kept;
  for (size_t i = 0; i < busy.size(); ++i) {
    index[i] = static_cast<int>(kept.size());
    PlacedReplica& replica = placement->replicas[i];
    if (busy[i]) kept.push_back(std::move(replica));
  }
  placement->replicas = std::move(kept);
  for (Share& share : placement->shares) {
    share.prefill = index[static_cast<size_t>(share.prefill)];
    share.decode = index[static_cast<size_t>(share.decode)];
  }
  AddRent(graph, placement);
}

Search WithoutIdle(Search search) {
  return [search = std::move(search)](const PlacementProblem& problem) {
    absl::StatusOr<Placement> placement = search(problem);
    if (!placement.ok()) return placement;
    LeaveOutIdle(*problem.graph, &*placement);
    for (Placement& alternative : placement->alternatives)
      LeaveOutIdle(*problem.graph, &alternative);
    return placement;
  };
}

}  // namespace tessera::scheduler
