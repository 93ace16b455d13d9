// Plans for the workers that really registered, with the links and sites that a description gives
// them (`tessera-coordinator --cluster`).
//
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/deployment/plan_terms.h"
#include "coordinator/deployment/worker_pool.h"
#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "scheduler/planner/planner_input.h"

namespace tessera::coordinator {

// As `tessera plan` has them, but for the rows of a step that buffers are charged for: those that
// are usual where flags do not say.
scheduler::PlannerOptions UsualPlannerOptions();

struct ClusterQuestion {
  scheduler::PlannerInput input;  // the whole description; the model is the one that is served
  scheduler::PlannerOptions options = UsualPlannerOptions();
  double wait_seconds = 30;  // for devices that are described and have not registered
};

// Asked in place of the planner, with what it would be given; its answer is passed on as it is.
// `names`: who the input's devices are.
using RegisteredPlanner = std::function<absl::StatusOr<v1::DeploymentPlan>(
    const scheduler::PlannerInput&, const scheduler::PlannerOptions&,
    const std::map<std::string, std::string>& names)>;

// Devices of the description ("machine/index") that no live worker has registered as, without those
// of kinds that no worker runs on.
std::vector<std::string> MissingDevices(const v1::Cluster& cluster,
                                        const std::map<std::string, WorkerRecord>& workers);

// The planner's plan, with replicas of the roles that the options allow, of any stages and widths.
// Memory and memory bandwidth are those that workers report; memory is at most what the description
// itself gives a device, which the assumptions say where it binds (the catalogue limits nothing).
// Where all workers are on CPUs, no memory is held back for a runtime. A worker that the
// description does not know is named in the plan's notes. InvalidArgument for a bad description,
// ResourceExhausted where nothing fits.
absl::StatusOr<v1::DeploymentPlan> PlanForRegistered(
    const ClusterQuestion& start, const v1::Model& model,
    const std::map<std::string, WorkerRecord>& workers, const RegisteredPlanner& other = nullptr);

}  // namespace tessera::coordinator
