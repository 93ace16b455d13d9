#include "scheduler/planner/report/bottleneck.h"

#include <cmath>
#include <map>
#include <string>

#include "scheduler/planner/report/link_load.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kNamedLinks = 0.02;  // of a step's way: then links are named beside stages
constexpr double kWaysBind = 1.001;   // times the slowest stage: the way through all of them binds

const std::string& KindOf(const ClusterGraph& graph, const PlacedReplica& placed, int stage) {
  const LayoutStage& at = placed.stages[static_cast<size_t>(stage)];
  return graph.pools()[static_cast<size_t>(at.pool)].spec->kind;
}

// The link after a stage.
v1::NamedLink HopOf(const ClusterGraph& graph, const PlacedReplica& placed, int hop) {
  const size_t from = static_cast<size_t>(hop), to = (from + 1) % placed.stages.size();
  const int a = graph.pools()[static_cast<size_t>(placed.stages[from].pool)].machine,
            b = graph.pools()[static_cast<size_t>(placed.stages[to].pool)].machine;
  v1::NamedLink link;
  link.set_from(graph.machines()[static_cast<size_t>(a)].name);
  link.set_to(graph.machines()[static_cast<size_t>(b)].name);
  link.set_bytes_per_second(graph.Between(a, b).bytes_per_second);
  return link;
}

Period SteadyPeriod(const PlacementProblem& problem, const PlacedReplica& placed) {
  const StepWork work =
      SteadyWork(placed.role, MomentsOf(problem.samples), placed.rate.decode_rows, problem.options);
  return PeriodOf(*problem.model, SpecOf(problem, placed), work, placed.rate.micro_batches);
}

std::vector<double> BusySharesOf(const PlacementProblem& problem, const PlacedReplica& placed) {
  const StepWork work =
      SteadyWork(placed.role, MomentsOf(problem.samples), placed.rate.decode_rows, problem.options);
  return BusyShares(*problem.model, SpecOf(problem, placed), work, placed.rate.micro_batches);
}

v1::PaceLimit ToProto(Limit limit) {
  switch (limit) {
    case Limit::kNothing: return v1::PACE_LIMIT_UNSPECIFIED;
    case Limit::kKv: return v1::PACE_LIMIT_KV;
    case Limit::kTpot: return v1::PACE_LIMIT_TPOT;
    case Limit::kStepTokens: return v1::PACE_LIMIT_STEP_TOKENS;
    case Limit::kSequences: return v1::PACE_LIMIT_SEQUENCES;
    case Limit::kObjectives: return v1::PACE_LIMIT_OBJECTIVES;
  }
  return v1::PACE_LIMIT_UNSPECIFIED;
}

v1::Pace PaceOf(const PlacementProblem& problem, const PlacedReplica& placed) {
  const ClusterGraph& graph = *problem.graph;
  const Period period = SteadyPeriod(problem, placed);
  v1::Pace pace;
  pace.set_slowest_stage(period.slowest_stage);
  pace.set_kind(KindOf(graph, placed, period.slowest_stage));
  pace.set_stage_seconds(period.slowest_stage_seconds);
  pace.set_steps_under_way(placed.rate.micro_batches);
  // However empty its links are, a pipeline of few steps under way waits for every hop.
  const bool way = period.seconds > kWaysBind * period.slowest_stage_seconds &&
                   period.hops_seconds > kNamedLinks * period.latency_seconds;
  if (period.hop_bound) pace.set_hop_seconds(period.slowest_hop_seconds);
  if (way && !period.hop_bound) pace.set_hops_share(period.hops_seconds / period.latency_seconds);
  if (period.hop_bound || way)
    *pace.mutable_slowest_hop() = HopOf(graph, placed, period.slowest_hop);
  if (placed.rate.limit != Limit::kNothing) *pace.mutable_limit() = LimitOf(problem, placed);
  return pace;
}

}  // namespace

void WriteBusyShares(const PlacementProblem& problem, const Placement& placement,
                     v1::DeploymentPlan* plan) {
  for (size_t i = 0; i < placement.replicas.size(); ++i) {
    v1::Replica* replica = plan->mutable_replicas(static_cast<int>(i));
    const std::vector<double> shares = BusySharesOf(problem, placement.replicas[i]);
    for (size_t j = 0; j < shares.size(); ++j)
      replica->mutable_stages(static_cast<int>(j))->set_busy_share(shares[j]);
  }
}

v1::LimitedBy LimitOf(const PlacementProblem& problem, const PlacedReplica& placed) {
  constexpr double kRounding = 1 - 1e-6;
  const ReplicaRate& rate = placed.rate;
  const bool kv = rate.limit == Limit::kKv;
  const int stage = kv ? rate.kv_limiting_stage : rate.slowest_stage;
  v1::LimitedBy limit;
  limit.set_limit(ToProto(rate.limit));
  limit.set_stage(stage);
  limit.set_kind(KindOf(*problem.graph, placed, stage));
  if (rate.limit == Limit::kStepTokens) limit.set_most(problem.options.memory.max_step_tokens);
  if (rate.limit != Limit::kSequences) return limit;
  const double most = WithSeats(problem.options, rate.seats).max_sequences;
  if (rate.decode_rows * rate.micro_batches >= kRounding * most) {
    limit.set_most(std::llround(most));
  } else {
    limit.set_limit(v1::PACE_LIMIT_PROMPTS);
  }
  return limit;
}

std::vector<v1::Pace> PacesOf(const PlacementProblem& problem, const Placement& placement,
                              const v1::DeploymentPlan& plan) {
  const std::map<std::string, std::vector<v1::LinkLoad>> full =
      FullLinks(plan, *problem.graph, *problem.model);
  std::vector<v1::Pace> paces;
  for (size_t i = 0; i < placement.replicas.size(); ++i) {
    v1::Pace& pace = paces.emplace_back(PaceOf(problem, placement.replicas[i]));
    pace.set_replica(StrCat("r", i));
    const auto links = full.find(pace.replica());
    if (links == full.end()) continue;
    for (const v1::LinkLoad& load : links->second) {
      v1::NamedLink& link = *pace.add_full_links();
      link.set_from(load.from());
      link.set_to(load.to());
      link.set_bytes_per_second(load.capacity_bytes_per_second());
    }
  }
  return paces;
}

}  // namespace tessera::scheduler
