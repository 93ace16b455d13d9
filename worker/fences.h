// The checks that stand before every message to a worker: is the caller of this cluster, and does
// it speak about the plan and the process that are really here. Thread rule: thread-safe.
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/worker.pb.h"

namespace tessera::worker {

// UNAUTHENTICATED unless the call's metadata carries `token`; an empty token asks for nothing.
absl::Status CheckToken(const grpc::ServerContextBase& context, const std::string& token);

// FAILED_PRECONDITION naming both incarnations when the fence means another process.
absl::Status CheckIncarnation(const v1::Fence& fence, uint64_t incarnation);

// CheckIncarnation, and FAILED_PRECONDITION naming both epochs when they differ.
absl::Status CheckFence(const v1::Fence& fence, const v1::Fence& ours);

// Only the one that leads of several coordinators (--ha) may change this worker, or open a session.
class HighestTerm {
 public:
  // FAILED_PRECONDITION naming both terms where the caller's (proto/leader_term.h) is below one
  // that was seen before.
  absl::Status Check(const grpc::ServerContextBase& context);
  // The term that this worker obeys; 0: none has said one.
  uint64_t value() const { return highest_; }

 private:
  std::atomic<uint64_t> highest_{0};
};

}  // namespace tessera::worker
