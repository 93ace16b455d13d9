#include "worker/fences.h"

#include "proto/leader_term.h"
#include "proto/protocol.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {

absl::Status CheckToken(const grpc::ServerContextBase& context, const std::string& token) {
  if (token.empty()) return absl::OkStatus();
  const auto& metadata = context.client_metadata();
  const auto found =
      metadata.find(grpc::string_ref(kClusterTokenKey.data(), kClusterTokenKey.size()));
  if (found == metadata.end()) {
    return absl::UnauthenticatedError(
        StrCat("this worker wants the cluster's token in the metadata entry ", kClusterTokenKey,
               " (--cluster-token-file)"));
  }
  if (!SecretsEqual(std::string_view(found->second.data(), found->second.size()), token)) {
    return absl::UnauthenticatedError("the cluster token is not this worker's");
  }
  return absl::OkStatus();
}

absl::Status HighestTerm::Check(const grpc::ServerContextBase& context) {
  const uint64_t term = LeaderTermIn(context.client_metadata());
  uint64_t highest = highest_;
  while (highest < term && !highest_.compare_exchange_weak(highest, term)) {
  }
  if (highest <= term) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("this worker obeys the coordinator of term ", highest, ", the caller is of term ",
             term, ": another coordinator leads (or --ha was taken away: restart this worker)"));
}

absl::Status CheckIncarnation(const v1::Fence& fence, uint64_t incarnation) {
  if (fence.worker_incarnation() == incarnation) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("stale message: it is for worker incarnation ",
                                              fence.worker_incarnation(), ", this one is ",
                                              incarnation, " (the worker was restarted)"));
}

absl::Status CheckFence(const v1::Fence& fence, const v1::Fence& ours) {
  if (absl::Status status = CheckIncarnation(fence, ours.worker_incarnation()); !status.ok()) {
    return status;
  }
  if (fence.plan_epoch() == ours.plan_epoch()) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("stale message: it comes from plan epoch ",
                                              fence.plan_epoch(), ", this worker serves epoch ",
                                              ours.plan_epoch()));
}

}  // namespace tessera::worker
