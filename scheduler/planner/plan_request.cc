#include "scheduler/planner/plan_request.h"

#include "scheduler/input/catalogue.h"
#include "scheduler/plan_check.h"
#include "scheduler/planner/shared_cluster.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

absl::StatusOr<v1::Model> ModelOf(const v1::PlanRequest& request, const v1::Model& served) {
  if (!request.has_model() || request.model().ByteSizeLong() == 0) return served;
  if (request.model().layers() > 0 || request.model().name().empty()) return request.model();
  return BuiltInModel(request.model().name());
}

absl::StatusOr<Goal> GoalOf(v1::Objective objective) {
  switch (objective) {
    case v1::OBJECTIVE_UNSPECIFIED:
    case v1::OBJECTIVE_THROUGHPUT: return Goal::kThroughput;
    case v1::OBJECTIVE_PRICE: return Goal::kPrice;
    case v1::OBJECTIVE_BUDGET: return Goal::kBudget;
    default:
      return absl::InvalidArgumentError(
          "request: objective: only throughput, price and budget are planned for here; latency "
          "limits go into workload.objectives");
  }
}

// That nothing fits, or no such search is there, is the request's fault: asking again later does
// not help.
absl::Status AsFault(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsNotFound(status)
             ? absl::InvalidArgumentError(status.message())
             : status;
}

absl::StatusOr<v1::PlanReply> AnswerShared(const v1::PlanRequest& request, PlannerInput input,
                                           const PlannerOptions& options) {
  if (request.has_model() || request.has_workload() || request.has_running()) {
    return absl::InvalidArgumentError(
        "request: models: stand instead of model, workload and running; leave those out");
  }
  std::vector<PlannerInput> inputs;
  for (int i = 0; i < request.models_size(); ++i) {
    const v1::ModelRequest& one = request.models(i);
    input.workload = one.workload();
    input.workload_file = StrCat("request: models[", i, "].workload");
    if (!input.workload.trace().empty())
      return absl::InvalidArgumentError(
          StrCat(input.workload_file, ".trace: files are not read on behalf of clients"));
    v1::PlanRequest alone;
    *alone.mutable_model() = one.model();
    absl::StatusOr<v1::Model> model = ModelOf(alone, v1::Model());
    if (!model.ok() || model->layers() <= 0) {
      return absl::InvalidArgumentError(
          StrCat("request: models[", i,
                 "].model: ", model.ok() ? "is missing" : std::string(model.status().message())));
    }
    input.model = *std::move(model);
    inputs.push_back(input);
  }
  absl::StatusOr<SharedPlans> shared = PlanShared(inputs, options);
  if (!shared.ok()) return AsFault(shared.status());
  v1::PlanReply reply;
  std::string text = shared->text;
  for (v1::DeploymentPlan& plan : shared->plans) {
    text += "\n" + PlanTable(plan);
    *reply.add_plans() = std::move(plan);
  }
  reply.set_text(std::move(text));
  return reply;
}

}  // namespace

absl::StatusOr<v1::PlanReply> AnswerPlanRequest(const v1::PlanRequest& request,
                                                const v1::Model& served, SearchWatch watch) {
  PlannerInput input;
  input.cluster_file = "request: cluster";
  input.workload_file = "request: workload";
  input.cluster = request.cluster();
  input.workload = request.workload();
  if (!input.workload.trace().empty()) {
    return absl::InvalidArgumentError(
        "request: workload.trace: files are not read on behalf of clients; give the lengths of "
        "classes, or plan with `tessera plan`");
  }
  absl::StatusOr<v1::DeviceCatalogue> catalogue = BuiltInDevices();
  if (!catalogue.ok()) return catalogue.status();
  input.catalogue = *std::move(catalogue);
  PlannerOptions options;
  const absl::StatusOr<Goal> goal = GoalOf(request.objective());
  if (!goal.ok()) return goal.status();
  options.goal = *goal;
  options.search = request.search();
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
  if (!request.models().empty()) return AnswerShared(request, std::move(input), options);
  absl::StatusOr<v1::Model> model = ModelOf(request, served);
  if (!model.ok()) return absl::InvalidArgumentError(model.status().message());
  input.model = *std::move(model);
  absl::StatusOr<v1::DeploymentPlan> plan = MakePlan(input, options);
  if (!plan.ok()) return AsFault(plan.status());
  v1::PlanReply reply;
  reply.set_text(PlanTable(*plan));
  *reply.mutable_plan() = *std::move(plan);
  return reply;
}

}  // namespace tessera::scheduler
