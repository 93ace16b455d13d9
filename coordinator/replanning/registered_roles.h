// Other roles for a plan in force, of the workers that registered with a cluster description.
// Thread rule: pure functions.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/deployment/registered_cluster.h"
#include "scheduler/planner/role_search.h"

namespace tessera::coordinator {

// The best roles for start.workload. FailedPrecondition where a device of the plan is not there or
// not described; else as PlanForRegistered.
absl::StatusOr<scheduler::RoleChoice> RolesForRegistered(
    const ClusterQuestion& start, const v1::Model& model,
    const std::map<std::string, WorkerRecord>& workers, const v1::DeploymentPlan& running);

// `start` with this workload in place of its own, whose limits of latency stay: those of the whole
// workload, else of its largest class that has some.
ClusterQuestion WithWorkload(ClusterQuestion start, v1::Workload observed);

}  // namespace tessera::coordinator
