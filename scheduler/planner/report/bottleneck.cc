#include "scheduler/planner/report/bottleneck.h"

#include <map>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/planner/report/link_load.h"
#include "scheduler/planner/report/plan_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kNamedLinks = 0.02;  // of a step's way: then links are named beside stages
constexpr double kWaysBind = 1.001;   // times the slowest stage: the way through all of them binds

std::string StageName(const ClusterGraph& graph, const PlacedReplica& placed, int stage) {
  const LayoutStage& at = placed.stages[static_cast<size_t>(stage)];
  return StrCat("stage ", stage, " (", graph.pools()[static_cast<size_t>(at.pool)].spec->kind, ")");
}

// The link after a stage, with its speed.
std::string HopName(const ClusterGraph& graph, const PlacedReplica& placed, int hop) {
  const size_t from = static_cast<size_t>(hop), to = (from + 1) % placed.stages.size();
  const int a = graph.pools()[static_cast<size_t>(placed.stages[from].pool)].machine,
            b = graph.pools()[static_cast<size_t>(placed.stages[to].pool)].machine;
  const std::string& name = graph.machines()[static_cast<size_t>(a)].name;
  return absl::StrFormat(
      "%s (%s)",
      a == b ? StrCat("the link inside ", name)
             : StrCat("the link ", name, " -> ", graph.machines()[static_cast<size_t>(b)].name),
      GbitText(graph.Between(a, b).bytes_per_second));
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

std::string PaceText(const PlacementProblem& problem, const PlacedReplica& placed) {
  const ClusterGraph& graph = *problem.graph;
  const Period period = SteadyPeriod(problem, placed);
  const std::string stage = StageName(graph, placed, period.slowest_stage);
  if (period.hop_bound) {
    return absl::StrFormat(
        "%s sets the pace, %.3g ms per step where the slowest stage, %s, takes %.3g ms",
        HopName(graph, placed, period.slowest_hop), period.slowest_hop_seconds * 1e3, stage,
        period.slowest_stage_seconds * 1e3);
  }
  // However empty its links are, a pipeline of few steps under way waits for every hop.
  if (period.seconds > kWaysBind * period.slowest_stage_seconds &&
      period.hops_seconds > kNamedLinks * period.latency_seconds) {
    return absl::StrFormat(
        "%s is the slowest, and each of the %d steps under way spends %.0f %% of its time on "
        "links, most on %s",
        stage, placed.rate.micro_batches, 100 * period.hops_seconds / period.latency_seconds,
        HopName(graph, placed, period.slowest_hop));
  }
  return StrCat(stage, " is the slowest");
}

std::string FullText(const std::vector<v1::LinkLoad>& links) {
  std::vector<std::string> names;
  for (const v1::LinkLoad& link : links) {
    names.push_back(absl::StrFormat("%s (%s)",
                                    link.to().empty()
                                        ? StrCat("the uplink of ", link.from())
                                        : StrCat("the link ", link.from(), " -> ", link.to()),
                                    GbitText(link.capacity_bytes_per_second())));
  }
  return StrCat(absl::StrJoin(names, " and "), names.size() == 1 ? " is full, " : " are full, ");
}

// What keeps it from working on more requests at once, each of which would make it faster.
std::string LimitText(const PlacementProblem& problem, const PlacedReplica& placed,
                      bool behind_links) {
  const Limit limit = placed.rate.limit;
  if (limit == Limit::kNothing) return "";
  const bool rate = limit == Limit::kObjectives;
  std::string text =
      behind_links
          ? (rate ? ", its own rate is limited by " : ", its own requests at once are limited by ")
          : (rate ? ", the rate is limited by " : ", requests at once are limited by ");
  text += LimitName(problem, placed);
  return limit == Limit::kKv
             ? StrCat(text, " of ",
                      StageName(*problem.graph, placed, placed.rate.kv_limiting_stage))
             : text;
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

std::string LimitName(const PlacementProblem& problem, const PlacedReplica& placed) {
  const ReplicaRate& rate = placed.rate;
  if (rate.limit == Limit::kStepTokens)
    return StrCat("--max-batched-tokens, ", problem.options.memory.max_step_tokens, " in a step");
  if (rate.limit != Limit::kSequences) return std::string(Name(rate.limit));
  constexpr double kRounding = 1 - 1e-6;
  const double most = problem.options.max_sequences;
  return rate.decode_rows * rate.micro_batches >= kRounding * most
             ? absl::StrFormat("--max-sequences, %.0f decoding at once", most)
             : "how many prompts may begin in one step";
}

std::string BottleneckText(const PlacementProblem& problem, const Placement& placement,
                           const v1::DeploymentPlan& plan) {
  const std::map<std::string, std::vector<v1::LinkLoad>> full =
      FullLinks(plan, *problem.graph, *problem.model);
  std::vector<std::string> lines;
  for (size_t i = 0; i < placement.replicas.size(); ++i) {
    const PlacedReplica& placed = placement.replicas[i];
    const std::string name = StrCat("r", i);
    std::string line = StrCat(name, ": ");
    const auto links = full.find(name);
    if (links != full.end()) line += FullText(links->second);
    line += StrCat(PaceText(problem, placed), LimitText(problem, placed, links != full.end()));
    lines.push_back(std::move(line));
  }
  return absl::StrJoin(lines, "; ");
}

}  // namespace tessera::scheduler
