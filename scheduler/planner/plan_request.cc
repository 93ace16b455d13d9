#include "scheduler/planner/plan_request.h"

#include "scheduler/input/catalogue.h"
#include "scheduler/plan_check.h"
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
  absl::StatusOr<v1::Model> model = ModelOf(request, served);
  if (!model.ok()) return absl::InvalidArgumentError(model.status().message());
  input.model = *std::move(model);
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
  absl::StatusOr<v1::DeploymentPlan> plan = MakePlan(input, options);
  // That nothing fits, or no such search is there, is the request's fault: asking again later does
  // not help.
  if (absl::IsResourceExhausted(plan.status()) || absl::IsNotFound(plan.status()))
    return absl::InvalidArgumentError(plan.status().message());
  if (!plan.ok()) return plan.status();
  v1::PlanReply reply;
  reply.set_text(PlanTable(*plan));
  *reply.mutable_plan() = *std::move(plan);
  return reply;
}

}  // namespace tessera::scheduler
