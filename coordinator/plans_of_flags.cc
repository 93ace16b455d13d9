#include "coordinator/plans_of_flags.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/deployment/cluster_planner.h"
#include "proto/file_text.h"
#include "scheduler/plan_file.h"

namespace tessera::coordinator {
namespace {

absl::StatusOr<v1::DeploymentPlan> ReadPlan(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFileText(path, scheduler::kMaxPlanBytes);
  if (!text.ok()) return text.status();
  return scheduler::ParsePlan(*text, path);
}

}  // namespace

absl::Status InPlanFiles(const CoordinatorOptions& options, const absl::Status& status) {
  if (options.plan_files.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(absl::StrJoin(options.plan_files, ", "), ": ",
                                                  std::string(status.message())));
}

absl::StatusOr<std::unique_ptr<PlanSource>> PlansOfFlags(const CoordinatorOptions& options,
                                                         std::span<const v1::Model> models,
                                                         const v1::ConfigureRequest& configure,
                                                         ReadDraftCounts draft_counts,
                                                         std::function<double()> now_seconds) {
  if (!options.plan_files.empty()) {
    std::vector<v1::DeploymentPlan> plans;
    for (const std::string& file : options.plan_files) {
      absl::StatusOr<v1::DeploymentPlan> plan = ReadPlan(file);
      if (!plan.ok()) return plan.status();
      plans.push_back(*std::move(plan));
    }
    auto fixed = FixedPlans(std::move(plans), models);
    if (!fixed.ok()) return InPlanFiles(options, fixed.status());
    return fixed;
  }
  if (options.cluster_file.empty()) return EachWorkerAlone({models.begin(), models.end()});
  absl::StatusOr<PlanForWorkers> planner = PlannerOfCluster(
      options.cluster_file, options.workload_file, options.plan_wait_seconds, options.split,
      options.prefer, configure, std::move(now_seconds), std::move(draft_counts));
  if (!planner.ok()) return planner.status();
  return PlannedForWorkers(*std::move(planner), options.replan_after_seconds);
}

}  // namespace tessera::coordinator
