// Where planning requests wait for the one thread that plans, behind both doors (HTTP and gRPC).
//
// Planning is for whoever runs the cluster: every call needs the admin key (admin_access.h). A plan
// may take a core for a minute, so there is one thread, a short queue and a time limit, after which
// the best plan so far is the answer.
// Thread rule: thread-safe. Nothing blocks but Stop, which ends the search under way first.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/deployment/admin_access.h"
#include "proto/planning.pb.h"

namespace tessera::coordinator {

struct PlanningDeskOptions {
  AdminAccess admin;
  v1::Model served_model;               // for requests without a model; of several the first
  size_t max_waiting = 4;               // one more is UNAVAILABLE
  double time_limit_seconds = 60;       // of one search
  std::function<double()> now_seconds;  // monotonic
  std::function<v1::GetPlanReply()> running;
  // The drafts of the served model's workers, and how many were seen to stand; null or without a
  // source: unknown.
  std::function<v1::DraftTerms()> drafts;
  // Deployment::Apply.
  std::function<void(std::vector<v1::DeploymentPlan>,
                     std::function<void(absl::StatusOr<v1::ApplyPlanReply>)>)>
      apply;
};

class PlanningDesk {
 public:
  using Done = std::function<void(absl::StatusOr<v1::PlanReply>)>;
  using Applied = std::function<void(absl::StatusOr<v1::ApplyPlanReply>)>;

  explicit PlanningDesk(PlanningDeskOptions options);
  ~PlanningDesk();

  // Checks the value of an authorization header or metadatum: "Bearer KEY".
  absl::Status CheckAdmin(std::string_view authorization) const {
    return options_.admin.Check(authorization);
  }
  // `done` is called once, on the desk's thread, or at once where the queue is full. A request for
  // a served model that names no running plan is answered with the move from its plan in force.
  void Plan(v1::PlanRequest request, Done done);
  // Whoever waits is answered UNAVAILABLE; the destructor does it too.
  void Stop();
  v1::GetPlanReply Running() const { return options_.running(); }
  // Does not wait behind requests for plans. `done` is called once, from any thread.
  void Apply(v1::ApplyPlanRequest request, Applied done);

 private:
  struct Waiting {
    v1::PlanRequest request;
    Done done;
  };
  void Run();
  void AddRunning(v1::PlanRequest* request) const;
  v1::DraftTerms DraftsFor(const v1::PlanRequest& request) const;

  const PlanningDeskOptions options_;
  std::mutex mutex_;  // guards waiting_
  std::condition_variable wake_;
  std::deque<Waiting> waiting_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace tessera::coordinator
