#include <algorithm>

#include "scheduler/search/linear_program.h"
#include "scheduler/search/problem.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

LayoutProblem OnWholeGraph(const PlacementProblem& problem, Role role) {
  LayoutProblem layout;
  layout.model = problem.model;
  layout.graph = problem.graph;
  for (const DevicePool& pool : problem.graph->pools())
    layout.pools.push_back({pool.spec, pool.machine, pool.count});
  layout.role = role;
  return layout;
}

struct KvRoute {
  double requests_per_second = kUnbounded;
  KvCodec codec = KvCodec::kRaw;
};

// Requests per second whose KV the link between two replicas carries, in the best codec.
KvRoute KvRouteOf(const PlacementProblem& problem, const LengthMoments& lengths,
                  const PlacedReplica& from, const PlacedReplica& to) {
  const double bytes = lengths.prompt_tokens * KvBytesPerToken(*problem.model);
  KvRoute route;
  if (bytes <= 0) return route;
  const auto machine = [&](const PlacedReplica& replica, bool last) {
    const LayoutStage& stage = last ? replica.stages.back() : replica.stages.front();
    return problem.graph->pools()[static_cast<size_t>(stage.pool)].machine;
  };
  // Every stage sends its own layers; the narrowest of first and last pair stands for all.
  for (const bool last : {false, true}) {
    const LinkSpec& link = problem.graph->Between(machine(from, last), machine(to, last));
    const KvTransfer transfer =
        BestKvTransfer(bytes, link, problem.model->layers, 0, problem.codec_rates);
    if (1 / transfer.seconds < route.requests_per_second)
      route = {1 / transfer.seconds, transfer.codec};
  }
  return route;
}

absl::Status GiveDevices(const PlacementProblem& problem, std::vector<PlacedReplica>* replicas) {
  std::vector<int> used(problem.graph->pools().size(), 0);
  for (PlacedReplica& replica : *replicas) {
    replica.device_index.clear();
    replica.usd_per_hour = 0;
    for (const LayoutStage& stage : replica.stages) {
      const DevicePool& pool = problem.graph->pools()[static_cast<size_t>(stage.pool)];
      std::vector<int>& indices = replica.device_index.emplace_back();
      for (int rank = 0; rank < stage.width; ++rank) {
        indices.push_back(used[static_cast<size_t>(stage.pool)]++);
      }
      replica.usd_per_hour += stage.width * pool.price_usd_per_hour;
      if (used[static_cast<size_t>(stage.pool)] > pool.count) {
        return absl::FailedPreconditionError(StrCat(
            "the placement uses more than the ", pool.count, " ", pool.spec->kind, " of machine ",
            problem.graph->machines()[static_cast<size_t>(pool.machine)].name));
      }
    }
  }
  return absl::OkStatus();
}

// Shares of split replicas: the most that prefill, links and decode carry together.
absl::Status ShareSplit(const PlacementProblem& problem, const LengthMoments& lengths,
                        Placement* placement) {
  LinearProgram program;
  struct Pair {
    int prefill, decode, variable;
    KvCodec codec;
  };
  std::vector<Pair> pairs;
  std::vector<int> rows(placement->replicas.size());
  for (size_t i = 0; i < placement->replicas.size(); ++i) {
    rows[i] = program.AddRow(-kUnbounded, placement->replicas[i].rate.requests_per_second);
  }
  for (size_t i = 0; i < placement->replicas.size(); ++i) {
    if (placement->replicas[i].role != Role::kPrefill) continue;
    for (size_t j = 0; j < placement->replicas.size(); ++j) {
      if (placement->replicas[j].role != Role::kDecode) continue;
      const KvRoute route =
          KvRouteOf(problem, lengths, placement->replicas[i], placement->replicas[j]);
      const int variable = program.AddVariable(1, 0, route.requests_per_second, false);
      program.AddTerm(rows[i], variable, 1);
      program.AddTerm(rows[j], variable, 1);
      pairs.push_back({static_cast<int>(i), static_cast<int>(j), variable, route.codec});
    }
  }
  if (pairs.empty()) return absl::OkStatus();
  const absl::StatusOr<LinearProgram::Solution> solution = program.Solve(true);
  if (!solution.ok()) return solution.status();
  for (const Pair& pair : pairs) {
    const double rate = solution->values[static_cast<size_t>(pair.variable)];
    if (rate > 0) placement->shares.push_back({pair.prefill, pair.decode, rate, pair.codec});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Placement> Assemble(const PlacementProblem& problem,
                                   std::vector<PlacedReplica> replicas) {
  if (absl::Status s = GiveDevices(problem, &replicas); !s.ok()) return s;
  const LengthMoments lengths = MomentsOf(problem.samples, problem.prefix_hit_rate);
  Placement placement;
  placement.replicas = std::move(replicas);
  for (size_t i = 0; i < placement.replicas.size(); ++i) {
    PlacedReplica& replica = placement.replicas[i];
    const LayoutProblem layout = OnWholeGraph(problem, replica.role);
    replica.rate =
        CapacityOf(*problem.model, MakeReplica(layout, replica.stages), lengths, problem.options);
    placement.usd_per_hour += replica.usd_per_hour;
    if (replica.role != Role::kBoth || replica.rate.requests_per_second <= 0) continue;
    placement.shares.push_back(
        {static_cast<int>(i), static_cast<int>(i), replica.rate.requests_per_second});
  }
  if (absl::Status s = ShareSplit(problem, lengths, &placement); !s.ok()) return s;
  for (const Share& share : placement.shares)
    placement.requests_per_second += share.requests_per_second;
  return placement;
}

}  // namespace tessera::scheduler
