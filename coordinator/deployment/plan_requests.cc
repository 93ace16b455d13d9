#include "coordinator/deployment/plan_requests.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/deployment/plan_terms.h"
#include "coordinator/deployment/plan_waits.h"

namespace tessera::coordinator {
namespace {

// All workers of the replicas that come are there and have room for them.
absl::Status CheckComing(const PlanView& view, const PlanSet& next) {
  std::set<std::string> kept;
  for (const scheduler::PlanChange& change : ChangesOf(view.in_force, next)) {
    for (const scheduler::ReplicaChange& replica : change.replicas) {
      if (replica.kind == scheduler::ReplicaChange::Kind::kKeep) kept.insert(replica.to);
    }
  }
  for (const v1::DeploymentPlan& plan : next.plans) {
    for (const v1::Replica& replica : plan.replicas()) {
      if (kept.contains(replica.name())) continue;
      for (const v1::PlannedWorker* member : WorkersOf(replica)) {
        const std::string absent = WhyAbsent(member->device(), view.workers);
        if (!absent.empty()) {
          return absl::FailedPreconditionError(
              absl::StrCat("the plan cannot be applied: ", absent));
        }
        const v1::RegisterRequest& worker = view.workers.at(member->device()).registration;
        if (absl::Status s = CheckRoom(*member, worker.device().memory_bytes()); !s.ok()) return s;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

void PlanRequests::Ask(Plans plans, Done done) {
  absl::Status refused;
  {
    std::lock_guard lock(mutex_);
    if (!abandoned_.ok()) {
      refused = abandoned_;
    } else if (open_) {
      refused =
          absl::FailedPreconditionError("another plan is being applied: wait until that has ended");
    } else {
      open_ = true;
      asked_ = std::move(plans);
      done_ = std::move(done);
    }
  }
  if (!refused.ok()) done(refused);
}

void PlanRequests::Abandon(const absl::Status& reason) {
  Done done;
  {
    std::lock_guard lock(mutex_);
    abandoned_ = reason;
    std::swap(done, done_);
  }
  if (done) done(reason);
}

std::optional<NextPlan> PlanRequests::Next(const PlanView& view) {
  std::optional<Plans> asked;
  {
    std::lock_guard lock(mutex_);
    std::swap(asked, asked_);
  }
  if (!asked.has_value()) return std::nullopt;
  NextPlan next = {view.in_force, /*on_trial=*/true};
  next.plans.names_devices = true;
  next.plans.plans.resize(asked->size());
  for (size_t i = 0; i < asked->size(); ++i) {
    if ((*asked)[i].has_value()) next.plans.plans[i] = *std::move((*asked)[i]);
  }
  if (const absl::Status there = CheckComing(view, next.plans); !there.ok()) {
    Answer(there);
    return std::nullopt;
  }
  return next;
}

void PlanRequests::Answer(absl::StatusOr<v1::ApplyPlanReply> answer) {
  Done done;
  {
    std::lock_guard lock(mutex_);
    open_ = false;
    std::swap(done, done_);
  }
  if (done) done(std::move(answer));
}

}  // namespace tessera::coordinator
