#include "coordinator/deployment/fences.h"

#include "absl/strings/str_cat.h"

namespace tessera::coordinator {

absl::Status CheckReplyFence(const std::string& replica, const v1::Fence& fence,
                             const v1::Fence& session) {
  if (fence.worker_incarnation() != session.worker_incarnation()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "stale reply of replica ", replica, ": it comes from worker incarnation ",
        fence.worker_incarnation(), ", the session is with ", session.worker_incarnation()));
  }
  if (fence.plan_epoch() == session.plan_epoch()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("stale reply of replica ", replica, ": it comes from plan epoch ",
                   fence.plan_epoch(), ", the session is of ", session.plan_epoch()));
}

absl::Status CheckHeartbeatEpoch(const std::string& worker, uint64_t epoch, uint64_t configured) {
  if (epoch == configured) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "worker ", worker, " serves ", epoch == 0 ? "no plan" : absl::StrCat("plan epoch ", epoch),
      ", it was configured for epoch ", configured));
}

}  // namespace tessera::coordinator
