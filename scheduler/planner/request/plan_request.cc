#include "scheduler/planner/request/plan_request.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "proto/plain_text.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/draft_choice.h"
#include "scheduler/input/runtime_reserve.h"
#include "scheduler/input/workload_samples.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/advice/left_out_devices.h"
#include "scheduler/planner/advice/sensitivity.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/plan_table.h"
#include "scheduler/planner/shared/shared_cluster.h"
#include "scheduler/planner/shared/shared_outlook.h"
#include "scheduler/planner/shared/shared_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

absl::StatusOr<v1::Model> ModelOf(const v1::PlanRequest& request, const v1::Model& served) {
  if (!request.has_model() || request.model().ByteSizeLong() == 0) return served;
  if (!request.model().layers().empty() || request.model().name().empty()) return request.model();
  return BuiltInModel(request.model().name());
}

absl::StatusOr<Goal> GoalOf(v1::Objective objective) {
  switch (objective) {
    case v1::OBJECTIVE_UNSPECIFIED:
    case v1::OBJECTIVE_THROUGHPUT: return Goal::kThroughput;
    case v1::OBJECTIVE_GOODPUT: return Goal::kGoodput;
    case v1::OBJECTIVE_PRICE: return Goal::kPrice;
    case v1::OBJECTIVE_BUDGET: return Goal::kBudget;
    default:
      return absl::InvalidArgumentError(StrCat("request: objective: ", static_cast<int>(objective),
                                               " is none of throughput, goodput, price, budget"));
  }
}

// Traces come as text; files are not read on behalf of clients.
absl::Status ReadWorkload(const v1::Workload& given, PlannerInput* input) {
  input->workload = given;
  input->trace.clear();
  v1::Workload& workload = input->workload;
  constexpr const char* kNoFiles =
      "files are not read on behalf of clients; give the trace as trace_text, or the lengths of "
      "classes";
  if (!workload.trace().empty())
    return absl::InvalidArgumentError(StrCat(input->workload_file, ".trace: ", kNoFiles));
  const auto refuse = [&](const std::string&) -> absl::StatusOr<std::string> {
    return absl::InvalidArgumentError(kNoFiles);
  };
  if (absl::Status s = ReadClassTraces(refuse, input->workload_file, &workload); !s.ok()) return s;
  if (workload.trace_text().empty()) return absl::OkStatus();
  absl::StatusOr<std::vector<TraceRequest>> trace =
      ParseTrace(workload.trace_text(), input->workload_file + ".trace_text");
  if (!trace.ok()) return trace.status();
  input->trace = *std::move(trace);
  workload.clear_trace_text();
  return absl::OkStatus();
}

absl::Status OutOfRange(const char* key, const char* range) {
  return absl::InvalidArgumentError(StrCat("request: options: ", key, ": must be ", range));
}

// The bounds are those of `tessera plan`.
absl::Status ReadOptions(const v1::PlanOptions& given, v1::Objective objective,
                         PlannerOptions* options) {
  if (given.has_memory_utilisation()) options->utilisation = given.memory_utilisation();
  if (!(options->utilisation >= 0.01 && options->utilisation <= 1))
    return OutOfRange("memory_utilisation", "from 0.01 to 1");
  if (given.has_runtime_reserve_bytes())
    options->runtime_reserve_bytes = given.runtime_reserve_bytes();
  if (!(options->runtime_reserve_bytes >= 0 && std::isfinite(options->runtime_reserve_bytes)))
    return OutOfRange("runtime_reserve", "at least 0, such as \"1 GiB\"");
  if (given.has_kv_headroom()) options->kv_headroom = given.kv_headroom();
  if (!(options->kv_headroom >= 0 && options->kv_headroom <= 0.9))
    return OutOfRange("kv_headroom", "from 0 to 0.9");
  if (given.has_kv_codec_bytes_per_second())
    options->kv_codec_bytes_per_second = given.kv_codec_bytes_per_second();
  if (!(options->kv_codec_bytes_per_second > 0 &&
        std::isfinite(options->kv_codec_bytes_per_second)))
    return OutOfRange("kv_codec", "above 0, such as \"20 GB/s\"");
  if (given.has_max_step_tokens()) options->max_step_tokens = given.max_step_tokens();
  if (options->max_step_tokens < 1) return OutOfRange("max_step_tokens", "at least 1");
  if (given.has_max_sequences())
    options->max_sequences = static_cast<double>(given.max_sequences());
  if (options->max_sequences < 1) return OutOfRange("max_sequences", "at least 1");
  if (given.has_context_tokens()) options->context_tokens = given.context_tokens();
  if (options->context_tokens < 0) return OutOfRange("context_tokens", "at least 0");
  options->allow_split = !given.no_split();
  options->require_split = given.split();
  if (given.split() && given.no_split())
    return absl::InvalidArgumentError("request: options: split and no_split exclude each other");
  if (given.kv_int4()) options->strongest_kv_codec = KvCodec::kInt4;
  options->prove = given.prove();
  options->supported_only = !given.include_unsupported();
  const bool most = given.no_usual_limits() || objective == v1::OBJECTIVE_THROUGHPUT;
  options->preference = UsualPreference();
  if (most) options->preference = {.nearest = true};
  if (given.prefer() != v1::PLAN_PREFERENCE_UNSPECIFIED)
    options->preference.prefer = given.prefer();
  return absl::OkStatus();
}

// A choice between plans is one between those that weigh rates by latency.
absl::Status CheckPrefer(const v1::PlanRequest& request) {
  const v1::PlanOptions& options = request.options();
  if (options.prefer() == v1::PLAN_PREFERENCE_UNSPECIFIED) return absl::OkStatus();
  const char* other = request.objective() != v1::OBJECTIVE_UNSPECIFIED ? "objective"
                      : options.no_usual_limits()                      ? "options.no_usual_limits"
                      : options.split()                                ? "options.split"
                      : request.survive_machine_loss()                 ? "survive_machine_loss"
                      : request.spot_share() > 0                       ? "spot_share"
                      : !request.models().empty()                      ? "models"
                                                                       : nullptr;
  if (other == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("request: options.prefer: not together with ", other,
                                           ", which says what is planned for: leave out one"));
}

// A search that does not exist, or that nothing fits, is the request's fault: asking again later
// does not help.
absl::Status AsFault(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsNotFound(status)
             ? absl::InvalidArgumentError(status.message())
             : status;
}

// Files are not read on behalf of clients, so a draft model comes with the model.
absl::Status ReadDrafts(const v1::PlanOptions& given, const v1::DraftTerms& seen, v1::Model* model,
                        PlannerOptions* options) {
  DraftRequest request = {given.speculate(), given.draft_tokens(), std::nullopt};
  if (given.has_draft_acceptance()) request.acceptance = given.draft_acceptance();
  absl::StatusOr<v1::DraftTerms> drafts =
      ChooseDrafts(request, options->weight_dtype, options->kv_dtype, model);
  if (!drafts.ok())
    return absl::InvalidArgumentError(
        StrCat("request: options: ", StdView(drafts.status().message())));
  options->drafts = *std::move(drafts);
  if (seen.acceptance_origin() == v1::FIGURE_ORIGIN_MEASURED && !request.acceptance &&
      seen.source() == options->drafts.source() &&
      (seen.source() != "ngram" || seen.draft_tokens() == options->drafts.draft_tokens())) {
    options->drafts.set_acceptance(seen.acceptance());
    options->drafts.set_acceptance_origin(v1::FIGURE_ORIGIN_MEASURED);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::PlanReply> AnswerShared(const v1::PlanRequest& request, PlannerInput input,
                                           const PlannerOptions& options) {
  if (request.has_model() || request.has_workload() || request.has_running()) {
    return absl::InvalidArgumentError(
        "request: models: replace model, workload and running; leave those out");
  }
  const std::string& speculate = request.options().speculate();
  if (!speculate.empty() && speculate != "off") {
    return absl::InvalidArgumentError(
        "request: options.speculate: is for one model; plan the models one by one");
  }
  std::vector<PlannerInput> inputs;
  for (int i = 0; i < request.models_size(); ++i) {
    const v1::ModelRequest& one = request.models(i);
    input.workload_file = StrCat("request: models[", i, "].workload");
    if (absl::Status s = ReadWorkload(one.workload(), &input); !s.ok()) return s;
    v1::PlanRequest alone;
    *alone.mutable_model() = one.model();
    absl::StatusOr<v1::Model> model = ModelOf(alone, v1::Model());
    if (!model.ok() || model->layers().empty()) {
      return absl::InvalidArgumentError(
          StrCat("request: models[", i,
                 "].model: ", model.ok() ? "is missing" : std::string(model.status().message())));
    }
    input.model = *std::move(model);
    inputs.push_back(input);
  }
  absl::StatusOr<SharedPlans> shared = PlanShared(inputs, options);
  if (!shared.ok()) return AsFault(shared.status());
  const bool again = request.options().sensitivity();
  if (again || request.options().quick_sensitivity())
    AddSharedOutlook(inputs, options, again, &*shared);
  v1::PlanReply reply;
  reply.set_text(SharedText(*shared));
  for (v1::DeploymentPlan& plan : shared->plans) *reply.add_plans() = std::move(plan);
  return reply;
}

}  // namespace

absl::StatusOr<v1::PlanReply> AnswerPlanRequest(const v1::PlanRequest& request,
                                                const v1::Model& served, SearchWatch watch,
                                                const v1::DraftTerms& seen) {
  if (const std::string place = FieldWithControls(request); !place.empty()) {
    return absl::InvalidArgumentError(
        StrCat("request: ", place, ": must be of one line, without control characters"));
  }
  if (absl::Status s = CheckPrefer(request); !s.ok()) return s;
  PlannerInput input;
  input.by_request = true;
  input.cluster_file = "request: cluster";
  input.workload_file = "request: workload";
  input.cluster = request.cluster();
  if (absl::Status s = ReadWorkload(request.workload(), &input); !s.ok()) return s;
  absl::StatusOr<v1::DeviceCatalogue> catalogue = BuiltInDevices();
  if (!catalogue.ok()) return catalogue.status();
  input.catalogue = *std::move(catalogue);
  PlannerOptions options;
  options.runtime_reserve_bytes = RuntimeReserveBytes(input.cluster);
  const absl::StatusOr<Goal> goal = GoalOf(request.objective());
  if (!goal.ok()) return goal.status();
  options.goal = *goal;
  options.search = request.search();
  options.seed = request.seed();
  options.search_options.assign(request.search_options().begin(), request.search_options().end());
  options.weight_dtype = request.weight_dtype();
  options.kv_dtype = request.kv_dtype();
  if (absl::Status s = ReadOptions(request.options(), request.objective(), &options); !s.ok())
    return s;
  options.watch = std::move(watch);
  options.survive_machine_loss = request.survive_machine_loss();
  if (request.weight_read_bytes_per_second() > 0)
    options.move.disk_bytes_per_second = request.weight_read_bytes_per_second();
  options.move.network_bytes_per_second = request.weight_network_bytes_per_second();
  options.move.keeps_weights = request.move_keeps_weights();
  options.spot = {request.spot_share(), request.spot_extra()};
  if (request.has_running()) {
    if (absl::Status s = CheckPlan(request.running()); !s.ok())
      return absl::InvalidArgumentError(StrCat("request: running: ", StdView(s.message())));
    input.running = request.running();
  }
  if (request.simulation() != v1::SIMULATION_CHOICE_UNSPECIFIED)
    options.simulate = request.simulation() == v1::SIMULATION_CHOICE_ON;
  if (!request.models().empty()) return AnswerShared(request, std::move(input), options);
  absl::StatusOr<v1::Model> model = ModelOf(request, served);
  if (!model.ok()) return absl::InvalidArgumentError(model.status().message());
  input.model = *std::move(model);
  if (absl::Status s = ReadDrafts(request.options(), seen, &input.model, &options); !s.ok())
    return s;
  absl::StatusOr<v1::DeploymentPlan> plan = MakePlan(input, options);
  if (!plan.ok()) return AsFault(plan.status());
  AddLeftOutGain(input, options, &*plan);
  const bool again = request.options().sensitivity();
  if (again || request.options().quick_sensitivity()) AddSensitivity(input, options, again, &*plan);
  v1::PlanReply reply;
  reply.set_text(PlanTable(*plan));
  *reply.mutable_plan() = *std::move(plan);
  return reply;
}

}  // namespace tessera::scheduler
