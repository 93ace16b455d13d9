#include "scheduler/planner/planning_problem.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/input/draft_choice.h"
#include "scheduler/input/held_codes.h"
#include "scheduler/input/length_buckets.h"
#include "scheduler/input/supported_devices.h"
#include "scheduler/planner/plan_notes.h"
#include "scheduler/planner/refusal.h"
#include "scheduler/search/search_options.h"

namespace tessera::scheduler {
namespace {

// The most sequences that a replica on CPUs runs, as a multiple of max_sequences, an average; their
// rows are charged.
constexpr double kMoreSequences = 1.5;

// A worker has common blocks of so many tokens for each sequence that it has states or windows of;
// a sequence that is shorter than a window takes a part of one.
double LeastSequenceTokens(const ModelShape& shape, std::span<const RequestLengths> samples) {
  if (shape.keeps_states()) return TypicalTokens(shape);
  if (shape.windows.empty()) return 1;
  const auto window = static_cast<double>(shape.longest_window());
  return TypicalTokens(shape) * std::min(1.0, MomentsOf(samples).mean_decode_context() / window);
}

// The problem of what was read: shape, graph, workload and context are there.
void Pose(const PlannerOptions& options, PlanningProblem* out) {
  PlacementProblem& problem = out->problem;
  problem.model = &out->shape;
  problem.graph = &out->graph;
  problem.samples = out->workload.samples;
  problem.classes = out->workload.classes;
  problem.arrival_variation = out->workload.arrival_variation;
  problem.goal = options.goal;
  problem.allow_split = options.allow_split && HasOneKvShape(out->shape);
  problem.prove = options.prove;
  problem.watch = options.watch;
  problem.options.memory.utilisation = options.utilisation;
  problem.options.memory.runtime_reserve_bytes = options.runtime_reserve_bytes;
  problem.options.memory.max_step_tokens = options.max_step_tokens;
  if (options.runtime_reserve_bytes == 0)
    problem.options.memory.max_logit_rows =
        static_cast<int64_t>(std::ceil(kMoreSequences * options.max_sequences));
  problem.options.memory.context_tokens = out->context_tokens;
  problem.options.memory.block_tokens = options.block_tokens;
  problem.options.least_sequence_tokens = LeastSequenceTokens(out->shape, out->workload.samples);
  problem.options.kv_headroom = options.kv_headroom;
  problem.options.max_sequences = options.max_sequences;
  problem.options.longest_request_tokens = LongestRequestTokens(options);
  problem.codec_rates = {options.kv_codec_bytes_per_second, options.kv_codec_bytes_per_second,
                         options.strongest_kv_codec};
  problem.codec_rates.Limit(out->graph.kv_codec_bytes_per_second());
  problem.seed = options.seed;
  problem.options.max_tpot_seconds = options.goal == Goal::kGoodput
                                         ? LargestUsefulTpot(out->workload.classes)
                                         : LeastTpotLimit(out->workload.classes);
  problem.required_requests_per_second = out->workload.requests_per_second;
  problem.budget_usd_per_hour = out->graph.budget_usd_per_hour();
}

absl::Status Read(PlanningProblem* out) {
  const PlannerInput& input = *out->input;
  const PlannerOptions& options = *out->options;
  PlacementProblem& problem = out->problem;
  if (absl::Status s = CheckMoveOptions(options.move); !s.ok()) return s;
  if (absl::Status s = CheckSpot(input.cluster, options.spot, input.cluster_file); !s.ok())
    return s;
  absl::StatusOr<ModelShape> shape =
      MakeModelShape(input.model, options.weight_dtype, options.kv_dtype);
  if (!shape.ok()) return shape.status();
  out->shape = WithWireType(*std::move(shape), options.runtime_reserve_bytes);
  out->shape.drafts = DraftsOf(options.drafts);
  out->shape.drafts.max_rows = static_cast<double>(options.max_step_tokens);
  out->shape.drafts.max_logit_rows = options.max_sequences;
  absl::StatusOr<ClusterGraph> graph = MakeClusterGraph(WithSpotPrices(input.cluster, options.spot),
                                                        input.catalogue, input.cluster_file);
  if (!graph.ok()) return graph.status();
  out->graph = *std::move(graph);
  PriceSpot(input.cluster, options.spot, &out->graph);
  if (options.supported_only) {
    absl::StatusOr<SupportedPart> supported = SupportedDevices(
        std::move(out->graph), input.cluster, input.catalogue, input.cluster_file,
        input.by_request ? "options.include_unsupported" : "--include-unsupported");
    if (!supported.ok()) return supported.status();
    out->graph = std::move(supported->graph);
    out->left_out = std::move(supported->left_out);
  }
  if (options.require_split && !HasOneKvShape(out->shape)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", out->shape.name, " has layers whose keys and values are of unlike shapes, which ",
        "are not handed over: leave out ", input.by_request ? "options.split" : "--split"));
  }
  out->context_tokens =
      options.context_tokens > 0 ? options.context_tokens : out->shape.max_positions;
  absl::StatusOr<WorkloadSamples> samples =
      SamplesOf(input.workload, input.trace, out->context_tokens, input.workload_file);
  if (!samples.ok()) return samples.status();
  out->workload = Bucketed(*std::move(samples));

  Pose(options, out);
  auto search_options =
      ParseSearchOptions(options.search.empty() ? "best" : options.search, options.search_options);
  if (!search_options.ok()) return search_options.status();
  problem.search_options = *std::move(search_options);
  return CheckGoal(problem, input);
}

}  // namespace

bool Simulates(const PlannerOptions& options, int devices, bool splits) {
  const int most_devices = splits ? 1000 : 64;
  return options.simulate.value_or(!options.given_search && devices <= most_devices);
}

absl::StatusOr<std::unique_ptr<PlanningProblem>> ReadPlanningProblem(
    const PlannerInput& input, const PlannerOptions& options) {
  auto read = std::make_unique<PlanningProblem>();
  read->input = &input;
  if (KeepsFourBits(input.cluster, input.model)) {
    read->held = input;
    HoldFourBits(&read->held->model);
    read->input = &*read->held;
  }
  read->options = &options;
  if (absl::Status s = Read(&*read); !s.ok()) return s;
  return read;
}

}  // namespace tessera::scheduler
