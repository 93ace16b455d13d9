#include "scheduler/planner/plan_notes.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "scheduler/batcher.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/planner/kv_element.h"
#include "scheduler/planner/machine_losses.h"
#include "scheduler/planner/part_search.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/goodput.h"
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

v1::KindList Named(const std::set<std::string>& kinds) {
  v1::KindList list;
  for (const std::string& kind : kinds) list.add_kinds(kind);
  return list;
}

void AddDevices(const NotedPlan& plan, std::vector<v1::Note>* notes) {
  std::set<std::string> kinds, without_bfloat16, without_worker;
  for (const PlacedReplica& replica : plan.placement->replicas) {
    for (const LayoutStage& stage : replica.stages) {
      ForEachPart(stage, [&](const LayoutPart& part) {
        kinds.insert(plan.problem->graph->pools()[static_cast<size_t>(part.pool)].spec->kind);
      });
    }
  }
  for (const std::string& name : kinds) {
    const auto kind = DescribedKind(plan.input->cluster, plan.input->catalogue, name);
    const double capability = kind ? kind->compute_capability() : 0;
    if (kind && !HasWorker(*kind)) {
      without_worker.insert(name);
    } else if (capability > 0 && capability < kBfloat16Capability) {
      without_bfloat16.insert(name);
    }
  }
  const bool left_out = plan.left_out != nullptr && !plan.left_out->empty();
  if (!without_worker.empty() || left_out) {
    v1::WithoutWorker& without = *notes->emplace_back().mutable_without_worker();
    *without.mutable_kinds() = Named(without_worker).kinds();
    without.set_least_capability(kMinNvidiaCapability);
    if (left_out) {
      for (const auto& [kind, devices] : *plan.left_out) {
        v1::KindCount& count = *without.add_left_out();
        count.set_kind(kind);
        count.set_devices(devices);
      }
      without.set_requests_per_second(plan.placement->requests_per_second);
    }
  }
  if (UsesBfloat16(plan) && !without_bfloat16.empty())
    *notes->emplace_back().mutable_without_bfloat16() = Named(without_bfloat16);
}

// A replica that decodes with less KV than others have is left out of hand-overs.
void AddShortKv(const NotedPlan& plan, std::vector<v1::Note>* notes) {
  double least = LongestRequestTokens(*plan.options);
  v1::ShortKv shortest;
  shortest.set_longest_request_tokens(plan.options->context_tokens);
  for (size_t i = 0; i < plan.placement->replicas.size(); ++i) {
    const PlacedReplica& replica = plan.placement->replicas[i];
    if (replica.role == Role::kPrefill || replica.rate.kv_capacity_tokens >= least) continue;
    least = replica.rate.kv_capacity_tokens;
    shortest.set_replica(StrCat("r", i));
    shortest.set_kv_tokens(static_cast<int64_t>(least));
  }
  if (!shortest.replica().empty()) *notes->emplace_back().mutable_short_kv() = std::move(shortest);
}

// No measurement of such pipelines supports the cost model yet.
void AddPipelines(const NotedPlan& plan, std::vector<v1::Note>* notes) {
  const bool crosses = std::any_of(
      plan.placement->replicas.begin(), plan.placement->replicas.end(),
      [&](const auto& replica) { return MachinesOf(*plan.problem, replica).size() > 1; });
  if (crosses) notes->emplace_back().set_unmeasured_pipelines(true);
}

// What it costs that ranks wait for each other.
void AddMixedStages(const NotedPlan& plan, std::vector<v1::Note>* notes) {
  const ModelShape& model = *plan.problem->model;
  const StepWork work = DecodeWork(1, MomentsOf(plan.problem->samples).mean_decode_context());
  std::set<std::string> noted;  // alike ones once
  for (size_t i = 0; i < plan.placement->replicas.size(); ++i) {
    const PlacedReplica& replica = plan.placement->replicas[i];
    const ReplicaSpec spec = SpecOf(*plan.problem, replica);
    double sums = 0;
    for (size_t j = 0; j < spec.stages.size(); ++j) {
      if (replica.stages[j].mix != nullptr) sums += StageSumSeconds(model, spec.stages[j], work);
    }
    if (sums <= 0 || !noted.insert(AlikeKey(spec)).second) continue;
    v1::MixedStage& mixed = *notes->emplace_back().mutable_mixed_stage();
    mixed.set_replica(StrCat("r", i));
    mixed.set_sum_seconds(sums);
    mixed.set_step_seconds(PeriodOf(model, spec, work, 1).latency_seconds);
  }
}

void AddReplicasOn(const NotedPlan& plan, int machine, v1::LostMachine* lost) {
  constexpr int kNamed = 4;
  for (size_t i = 0; i < plan.placement->replicas.size(); ++i) {
    const std::vector<int> used = MachinesOf(*plan.problem, plan.placement->replicas[i]);
    if (std::find(used.begin(), used.end(), machine) == used.end()) continue;
    lost->set_replica_count(lost->replica_count() + 1);
    if (lost->replicas_size() < kNamed) lost->add_replicas(StrCat("r", i));
  }
}

// Replicas that one machine takes along.
void AddFailureDomains(const NotedPlan& plan, std::vector<v1::Note>* notes) {
  if (plan.survives || plan.problem->graph->devices() > kLossesUpTo) return;
  const std::vector<MachineLoss> losses = LossesOf(*plan.problem, *plan.placement);
  if (losses.empty()) return;
  const MachineLoss& worst = losses.front();
  v1::LostMachine& lost = *notes->emplace_back().mutable_lost_machine();
  lost.set_machine(plan.problem->graph->machines()[static_cast<size_t>(worst.machine)].name);
  AddReplicasOn(plan, worst.machine, &lost);
  lost.set_of_replicas(static_cast<int>(plan.placement->replicas.size()));
  lost.set_requests_per_second(worst.requests_per_second);
  lost.set_of_requests_per_second(plan.placement->requests_per_second);
}

// The same layout with twice as many sequences, where these are the limit.
void AddSequences(const NotedPlan& plan, std::vector<v1::Note>* notes) {
  const double most = plan.problem->options.max_sequences;
  v1::SequenceLimit limit;
  for (size_t i = 0; i < plan.placement->replicas.size(); ++i) {
    const ReplicaRate& rate = plan.placement->replicas[i].rate;
    if (rate.limit == Limit::kSequences && rate.decode_rows * rate.micro_batches >= 0.999 * most)
      limit.add_replicas(StrCat("r", i));
  }
  if (limit.replicas().empty() || plan.problem->goal == Goal::kGoodput) return;
  PlacementProblem more = *plan.problem;
  more.options.max_sequences = 2 * most;
  const absl::StatusOr<Placement> raised = Assemble(more, plan.placement->replicas);
  const absl::StatusOr<Placement> now = Assemble(*plan.problem, plan.placement->replicas);
  if (!raised.ok() || !now.ok() || !(now->requests_per_second > 0)) return;
  const double gain = raised->requests_per_second / now->requests_per_second - 1;
  limit.set_most(std::llround(most));
  limit.set_raised(2 * limit.most());
  limit.set_requests_per_second(raised->requests_per_second);
  if (gain > kWorthSaying) limit.set_gain(gain);
  *notes->emplace_back().mutable_sequence_limit() = std::move(limit);
}

double DecodedKvTokens(const std::vector<PlacedReplica>& replicas) {
  double tokens = 0;
  for (const PlacedReplica& replica : replicas) {
    if (replica.role != Role::kPrefill) tokens += replica.rate.kv_capacity_tokens;
  }
  return tokens;
}

// The same layout with KV in 8 bits, where room for KV is the limit, or the longest request has
// none.
void AddEightBitKv(const NotedPlan& plan, std::vector<v1::Note>* notes) {
  if (plan.problem->model->kv_bytes_per_element <= 1 || plan.problem->goal == Goal::kGoodput)
    return;
  v1::EightBitKv kv;
  for (size_t i = 0; i < plan.placement->replicas.size(); ++i) {
    const PlacedReplica& replica = plan.placement->replicas[i];
    const bool is_short = replica.role != Role::kPrefill &&
                          replica.rate.kv_capacity_tokens < LongestRequestTokens(*plan.options);
    if (is_short || replica.rate.limit == Limit::kKv) kv.add_replicas(StrCat("r", i));
  }
  if (kv.replicas().empty()) return;
  const absl::StatusOr<ModelShape> shape =
      MakeModelShape(plan.input->model, plan.options->weight_dtype, v1::DATA_TYPE_INT8);
  if (!shape.ok()) return;
  const ModelShape narrow =
      WithKvElement(*plan.problem->model, shape->kv_bytes_per_element, shape->kv_scale_bytes);
  PlacementProblem problem = *plan.problem;
  problem.model = &narrow;
  const absl::StatusOr<Placement> then = Assemble(problem, plan.placement->replicas);
  const absl::StatusOr<Placement> now = Assemble(*plan.problem, plan.placement->replicas);
  if (!then.ok() || !now.ok() || !(now->requests_per_second > 0)) return;
  const double gain = then->requests_per_second / now->requests_per_second - 1;
  kv.set_kv_tokens(std::llround(DecodedKvTokens(now->replicas)));
  kv.set_raised_kv_tokens(std::llround(DecodedKvTokens(then->replicas)));
  kv.set_requests_per_second(then->requests_per_second);
  if (gain > kWorthSaying) kv.set_gain(gain);
  *notes->emplace_back().mutable_eight_bit_kv() = std::move(kv);
}

}  // namespace

double LongestRequestTokens(const PlannerOptions& options) {
  return static_cast<double>(BlocksFor(options.context_tokens, options.block_tokens) *
                             options.block_tokens);
}

std::vector<v1::Note> PlanNotes(const NotedPlan& plan) {
  std::vector<v1::Note> notes;
  AddDevices(plan, &notes);
  AddShortKv(plan, &notes);
  AddMixedStages(plan, &notes);
  AddPipelines(plan, &notes);
  AddFailureDomains(plan, &notes);
  AddSequences(plan, &notes);
  AddEightBitKv(plan, &notes);
  return notes;
}

}  // namespace tessera::scheduler
