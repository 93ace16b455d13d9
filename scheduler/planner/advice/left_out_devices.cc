#include "scheduler/planner/advice/left_out_devices.h"

#include <algorithm>

#include "scheduler/planner/advice/device_places.h"
#include "scheduler/planner/advice/outlook.h"
#include "scheduler/planner/planner.h"

namespace tessera::scheduler {
namespace {

constexpr int kMaxDevices = 64;  // above which nobody waits for a second search

}  // namespace

void AddLeftOutGain(const PlannerInput& input, const PlannerOptions& options,
                    v1::DeploymentPlan* plan) {
  if (options.goal != Goal::kThroughput || options.watch.Stopped()) return;
  const auto note =
      std::find_if(plan->mutable_notes()->begin(), plan->mutable_notes()->end(),
                   [](const v1::Note& one) { return !one.without_worker().left_out().empty(); });
  if (note == plan->mutable_notes()->end() || DevicesOf(input.cluster) > kMaxDevices) return;
  PlannerOptions all = AgainAt(*plan, options);
  all.supported_only = all.prove = false;
  all.simulate = false;
  all.preference.simpler_within = 0;
  const absl::StatusOr<v1::DeploymentPlan> with = MakePlan(input, all);
  if (!with.ok()) return;
  v1::WithoutWorker& without = *note->mutable_without_worker();
  const double now = plan->prediction().requests_per_second();
  without.set_requests_per_second(now);
  without.set_with_requests_per_second(
      std::max(now, with->prediction().requests_per_second()));  // they may stay idle
}

}  // namespace tessera::scheduler
