// Where plans come from: a file, the planner, one replica for every worker, or the leader before
// this one (HighAvailability::KeptFirst). What people and the replanner ask for while the
// coordinator runs is plan_requests.h.
//
// A source says what should be in force; deployment.h puts it in force, by a Changeover.
//
// Thread rule: one thread, the deployment's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/deployment/plan_set.h"
#include "coordinator/deployment/straggler_watch.h"
#include "coordinator/deployment/worker_pool.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"
#include "proto/planning.pb.h"

namespace tessera::coordinator {

// What a source looks at. Lives as long as the call.
struct PlanView {
  const PlanSet& in_force;
  const std::map<std::string, WorkerRecord>& workers;  // by name
  double now_seconds = 0;
  std::vector<Straggler> stragglers = {};
};

struct NextPlan {
  PlanSet plans;
  // Replicas that go end their work first, and where one that comes cannot serve the plans before
  // are put in force again. False: in force at once, for good.
  bool on_trial = false;
};

class PlanSource {
 public:
  virtual ~PlanSource() = default;
  // What should be in force instead of what is; nothing: that stays. Not called while another plan
  // is being put in force.
  virtual std::optional<NextPlan> Next(const PlanView& view) = 0;
  // What Next returned cannot be carried out.
  virtual void Refuse(const absl::Status&) {}
  // What Next returned is in force (the reply), or the plans before are again.
  virtual void Ended(absl::StatusOr<v1::ApplyPlanReply>) {}
  // Why it has no plan yet; empty: it has, or has nothing to say.
  virtual std::string why_none() const { return ""; }
};

// These plans, once: one for each model, in any order. INVALID_ARGUMENT as ByModel, and naming a
// model without a plan.
absl::StatusOr<std::unique_ptr<PlanSource>> FixedPlans(std::vector<v1::DeploymentPlan> plans,
                                                       std::span<const v1::Model> models);

// One replica for every live worker, until a plan with chosen devices is in force. A new worker
// gets the model that has the fewest, and keeps it.
std::unique_ptr<PlanSource> EachWorkerAlone(std::vector<v1::Model> models);

// Makes the plan of the workers that registered. An error means not yet, and says why; UNAVAILABLE
// without a message: as it said before.
using PlanForWorkers =
    std::function<absl::StatusOr<v1::DeploymentPlan>(const std::map<std::string, WorkerRecord>&)>;

// The planner's plan of one model. Asked whenever something changed until there is one; then, for a
// plan without it, where a worker of the plan has been lost for `replan_after_seconds` (0: never),
// or has been kLeftOutFactor times slower than before for so long. Two replicas that are slow at a
// time stay: something that they share is slow then, or the measure is wrong.
std::unique_ptr<PlanSource> PlannedForWorkers(PlanForWorkers planner, double replan_after_seconds);

}  // namespace tessera::coordinator
