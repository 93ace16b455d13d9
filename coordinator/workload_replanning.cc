#include "coordinator/workload_replanning.h"

#include <chrono>
#include <utility>

#include "coordinator/deployment/cluster_planner.h"
#include "coordinator/replanning/counted_service.h"
#include "coordinator/replanning/registered_roles.h"

namespace tessera::coordinator {
namespace {

double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkloadReplanning>> WorkloadReplanning::Make(
    const CoordinatorOptions& options, const v1::ConfigureRequest& configure,
    ReadDraftCounts draft_counts, GenerationService& next) {
  std::unique_ptr<WorkloadReplanning> made(new WorkloadReplanning(next));
  made->mode_ = ReplanModeNamed(options.replan);
  if (options.cluster_file.empty() || made->mode_ == ReplanMode::kOff) return made;
  absl::StatusOr<ClusterQuestion> start =
      ReadPlanAtStart(options.cluster_file, options.workload_file, options.plan_wait_seconds,
                      options.split, options.prefer, configure);
  if (!start.ok()) return start.status();
  made->start_ = *std::move(start);
  made->model_ = configure.model();
  made->draft_counts_ = std::move(draft_counts);
  made->watch_ = std::make_shared<GuardedWatch>();
  made->counted_ = MakeCountedService(next, made->watch_, MonotonicSeconds);
  return made;
}

void WorkloadReplanning::Start(WorkerPool& pool, Deployment& deployment) {
  if (!start_.has_value()) return;
  ReplannerOptions options;
  options.mode = mode_;
  options.watch = watch_;
  options.now_seconds = MonotonicSeconds;
  options.running = [&deployment] { return deployment.plan(); };
  options.changing = [&deployment] { return deployment.changing_plan(); };
  // As the start was planned, for another workload and with the drafts that were seen meanwhile.
  const auto now = [this](const v1::Workload& workload, const scheduler::SearchWatch& search) {
    ClusterQuestion changed = WithWorkload(*start_, workload);
    changed.options.watch = search;
    CountOnMeasured(draft_counts_(), &changed.options.drafts);
    return changed;
  };
  options.roles = [this, now, &pool](const v1::DeploymentPlan& running,
                                     const v1::Workload& workload,
                                     const scheduler::SearchWatch& search) {
    return RolesForRegistered(now(workload, search), model_, pool.Snapshot(), running);
  };
  options.whole = [this, now, &pool](const v1::Workload& workload,
                                     const scheduler::SearchWatch& search) {
    return PlanForRegistered(now(workload, search), model_, pool.Snapshot());
  };
  options.apply = [&deployment](v1::DeploymentPlan plan, Deployment::Applied done) {
    deployment.Apply({std::move(plan)}, std::move(done));
  };
  replanner_ = std::make_unique<Replanner>(std::move(options));
}

}  // namespace tessera::coordinator
