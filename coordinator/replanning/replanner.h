// Watches the workload while a plan serves, and changes roles where requests are no longer those
// that the plan was made for.
//
//   requests that end -> workload_watch -> the workload has changed
//     -> other roles and shares, judged for the workload of the last minutes
//          -> worth a tenth more: they are applied; no worker reads weights
//     -> a whole plan for that workload
//          -> worth a tenth more than that: said, or applied (ReplanMode::kAuto)
//
// What was judged is what later requests are compared with, so that nothing is judged twice.
//
// Thread rule: thread-safe. One thread of its own looks once a second and searches; a search ends
// within its time limit, or when this object is destroyed, which waits for it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "coordinator/replanning/guarded_watch.h"
#include "proto/plan.pb.h"
#include "proto/planning.pb.h"
#include "proto/workload.pb.h"
#include "scheduler/planner/role_search.h"

namespace tessera::coordinator {

enum class ReplanMode {
  kOff,
  kRoles,  // roles and shares change, a whole plan is suggested
  kAuto,   // a whole plan is applied too
};

// "off", "roles", "auto"; anything else: kRoles.
ReplanMode ReplanModeNamed(const std::string& name);

struct ReplannerOptions {
  ReplanMode mode = ReplanMode::kRoles;
  std::shared_ptr<GuardedWatch> watch;  // gets the requests, and what is advised
  double min_gain = 0.1;                // 0.1: worth a tenth more
  double look_seconds = 1;              // between two looks
  double time_limit_seconds = 60;       // of one search
  std::function<double()> now_seconds;  // monotonic
  // The plan in force and its epoch.
  std::function<std::pair<v1::DeploymentPlan, uint64_t>()> running;
  // Another plan is being put in force: nothing is judged.
  std::function<bool()> changing;
  // The best roles of the replicas of a plan for a workload (scheduler::BestRoles).
  std::function<absl::StatusOr<scheduler::RoleChoice>(
      const v1::DeploymentPlan&, const v1::Workload&, const scheduler::SearchWatch&)>
      roles;
  // The best plan for a workload.
  std::function<absl::StatusOr<v1::DeploymentPlan>(const v1::Workload&,
                                                   const scheduler::SearchWatch&)>
      whole;
  // Deployment::Apply.
  std::function<void(v1::DeploymentPlan, std::function<void(absl::StatusOr<v1::ApplyPlanReply>)>)>
      apply;
};

class Replanner {
 public:
  explicit Replanner(ReplannerOptions options);
  ~Replanner();

 private:
  void Run();
  // One look: judges and applies where the workload has changed.
  void Look();
  // What the plan in force was made for is the reference, once per plan.
  void Follow(const v1::DeploymentPlan& plan, uint64_t epoch);
  void ChangeRoles(const v1::DeploymentPlan& plan, const v1::Workload& workload);
  void ConsiderWhole(const v1::Workload& workload, const scheduler::RoleChoice& roles);
  // Waits until it is applied. False: it was not, which was logged.
  bool Apply(const v1::DeploymentPlan& plan);
  scheduler::SearchWatch Watch();
  bool stopping() const;

  const ReplannerOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  // On our thread:
  uint64_t epoch_ = 0;    // of the plan that was seen last
  std::string followed_;  // that plan; empty: none
  std::thread thread_;
};

}  // namespace tessera::coordinator
