#include "scheduler/planner/plan_notes.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/planner/machine_losses.h"
#include "scheduler/search/layout/assemble.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr int kLossesUpTo = 128;  // devices, above which each loss is a program that takes long
constexpr double kWorthSaying = 0.01;

bool UsesBfloat16(const NotedPlan& plan) {
  const v1::DataType type = plan.options->weight_dtype == v1::DATA_TYPE_UNSPECIFIED
                                ? plan.input->model.dtype()
                                : plan.options->weight_dtype;
  return type == v1::DATA_TYPE_BFLOAT16;
}

void AddDevices(const NotedPlan& plan, std::vector<std::string>* lines) {
  std::set<std::string> kinds, without_bfloat16, without_worker;
  for (const PlacedReplica& replica : plan.placement->replicas) {
    for (const LayoutStage& stage : replica.stages)
      kinds.insert(plan.problem->graph->pools()[static_cast<size_t>(stage.pool)].spec->kind);
  }
  for (const std::string& name : kinds) {
    const auto kind = DescribedKind(plan.input->cluster, plan.input->catalogue, name);
    const double capability = kind ? kind->compute_capability() : 0;
    if (capability <= 0) continue;
    if (capability < kLeastCapability) without_worker.insert(name);
    if (capability < kBfloat16Capability) without_bfloat16.insert(name);
  }
  if (!without_worker.empty()) {
    lines->push_back(absl::StrFormat(
        "warning: no worker runs on %s: its compute capability is below %.1f; plan without it, or "
        "take this plan as an estimate",
        absl::StrJoin(without_worker, ", "), kLeastCapability));
  }
  if (UsesBfloat16(plan) && !without_bfloat16.empty()) {
    lines->push_back(StrCat(
        "warning: ", absl::StrJoin(without_bfloat16, ", "),
        " has no bfloat16 units: the model's bfloat16 weights are computed in float32 there, "
        "slower than this plan counts on; --dtype float16 is computed as planned"));
  }
}

// Of such pipelines no measurement stands behind the cost model yet.
void AddPipelines(const NotedPlan& plan, std::vector<std::string>* lines) {
  const std::vector<DevicePool>& pools = plan.problem->graph->pools();
  const bool crosses = std::any_of(
      plan.placement->replicas.begin(), plan.placement->replicas.end(), [&](const auto& replica) {
        return std::any_of(replica.stages.begin(), replica.stages.end(), [&](const auto& stage) {
          return pools[static_cast<size_t>(stage.pool)].machine !=
                 pools[static_cast<size_t>(replica.stages.front().pool)].machine;
        });
      });
  if (crosses)
    lines->push_back("stages on several machines: such pipelines are predicted, not measured yet");
}

std::string ReplicasOn(const NotedPlan& plan, int machine, int* count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < plan.placement->replicas.size(); ++i) {
    const auto& stages = plan.placement->replicas[i].stages;
    const bool uses = std::any_of(stages.begin(), stages.end(), [&](const LayoutStage& stage) {
      return plan.problem->graph->pools()[static_cast<size_t>(stage.pool)].machine == machine;
    });
    if (uses) names.push_back(StrCat("r", i));
  }
  *count = static_cast<int>(names.size());
  constexpr size_t kShown = 4;
  if (names.size() <= kShown) return absl::StrJoin(names, ", ");
  return StrCat(absl::StrJoin(names.begin(), names.begin() + kShown, ", "), " and ",
                names.size() - kShown, " more");
}

// Replicas that one machine takes along.
void AddFailureDomains(const NotedPlan& plan, std::vector<std::string>* lines) {
  if (plan.survives || plan.problem->graph->devices() > kLossesUpTo) return;
  const std::vector<MachineLoss> losses = LossesOf(*plan.problem, *plan.placement);
  if (losses.empty()) return;
  const MachineLoss& worst = losses.front();
  const std::string& name =
      plan.problem->graph->machines()[static_cast<size_t>(worst.machine)].name;
  int count = 0;
  const std::string replicas = ReplicasOn(plan, worst.machine, &count);
  const auto all = static_cast<int>(plan.placement->replicas.size());
  if (count == all) {
    lines->push_back(StrCat("the loss of machine ", name, " stops all of it: ",
                            all == 1 ? "its only replica" : "every replica", " uses it"));
    return;
  }
  lines->push_back(absl::StrFormat(
      "the loss of machine %s takes %d of %d replicas along (%s) and leaves %.3f of %.3f "
      "requests/s",
      name, count, all, replicas, worst.requests_per_second, plan.placement->requests_per_second));
}

// The same layout with twice as many sequences, where these are the limit.
void AddSequences(const NotedPlan& plan, std::vector<std::string>* lines) {
  const double most = plan.problem->options.max_sequences;
  std::vector<std::string> names;
  for (size_t i = 0; i < plan.placement->replicas.size(); ++i) {
    const ReplicaRate& rate = plan.placement->replicas[i].rate;
    if (rate.limit == Limit::kSequences && rate.decode_rows * rate.micro_batches >= 0.999 * most)
      names.push_back(StrCat("r", i));
  }
  if (names.empty() || plan.problem->goal == Goal::kGoodput) return;
  PlacementProblem more = *plan.problem;
  more.options.max_sequences = 2 * most;
  const absl::StatusOr<Placement> raised = Assemble(more, plan.placement->replicas);
  const absl::StatusOr<Placement> now = Assemble(*plan.problem, plan.placement->replicas);
  if (!raised.ok() || !now.ok() || !(now->requests_per_second > 0)) return;
  const double gain = raised->requests_per_second / now->requests_per_second - 1;
  lines->push_back(absl::StrFormat(
      "--max-sequences %.0f limits %s: --max-sequences %.0f %s", most,
      names.size() > 4 ? StrCat(names.size(), " replicas") : absl::StrJoin(names, ", "), 2 * most,
      gain > kWorthSaying
          ? absl::StrFormat("would serve %.3f requests/s with the same layout (%+.1f %%), each "
                            "request more slowly",
                            raised->requests_per_second, 100 * gain)
          : std::string("would bring next to nothing")));
}

}  // namespace

std::vector<std::string> PlanNotes(const NotedPlan& plan) {
  std::vector<std::string> lines;
  AddDevices(plan, &lines);
  AddPipelines(plan, &lines);
  AddFailureDomains(plan, &lines);
  AddSequences(plan, &lines);
  return lines;
}

}  // namespace tessera::scheduler
