// The plans that people and the replanner ask for while the coordinator runs, one at a time: each
// is put in force or refused, and whoever asked is answered.
//
// Thread rule: thread-safe, but for Next, Refuse and Ended (plan_source.h).
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/deployment/plan_source.h"
#include "proto/plan.pb.h"
#include "proto/planning.pb.h"

namespace tessera::coordinator {

class PlanRequests final : public PlanSource {
 public:
  // By model; nothing: what is in force stays.
  using Plans = std::vector<std::optional<v1::DeploymentPlan>>;
  using Done = std::function<void(absl::StatusOr<v1::ApplyPlanReply>)>;

  // `done` is called once, from any thread: at once where the request is not taken
  // (FAILED_PRECONDITION: there is one), else when it has ended.
  void Ask(Plans plans, Done done);
  // Answers whoever waits, and whoever asks from now on; what is being put in force goes on.
  void Abandon(const absl::Status& reason);

  // FAILED_PRECONDITION to whoever asked where a worker that comes is not there.
  std::optional<NextPlan> Next(const PlanView& view) override;
  void Refuse(const absl::Status& status) override { Answer(status); }
  void Ended(absl::StatusOr<v1::ApplyPlanReply> reply) override { Answer(std::move(reply)); }

 private:
  void Answer(absl::StatusOr<v1::ApplyPlanReply> answer);

  std::mutex mutex_;
  absl::Status abandoned_;
  bool open_ = false;           // from Ask on, until it has ended
  std::optional<Plans> asked_;  // until it is next
  Done done_;                   // null: none waits
};

}  // namespace tessera::coordinator
