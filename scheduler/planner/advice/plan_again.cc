#include "scheduler/planner/advice/plan_again.h"

#include <limits>

namespace tessera::scheduler {

PlannerOptions AgainAt(const v1::DeploymentPlan& plan, const PlannerOptions& options) {
  PlannerOptions again = options;
  again.attain_requests = 0;
  Preference& preference = again.preference;
  if (!preference.any()) return again;
  const double limit = plan.certificate().max_tpot_seconds();
  preference.full_tpot_seconds = preference.full_ttft_seconds = 0;
  preference.only_tpot_seconds = limit > 0 ? limit : std::numeric_limits<double>::infinity();
  return again;
}

}  // namespace tessera::scheduler
