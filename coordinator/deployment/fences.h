// Refuses what a worker says as another process, or about another plan, than the one that we talk
// to (docs/architecture.md, "Life of a plan", 3). Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

// FAILED_PRECONDITION naming `replica` and both sides when `fence`, of a reply, is not the
// session's.
absl::Status CheckReplyFence(const std::string& replica, const v1::Fence& fence,
                             const v1::Fence& session);

// The same for the plan epoch of a heartbeat of `worker`, which was configured for `configured`.
absl::Status CheckHeartbeatEpoch(const std::string& worker, uint64_t epoch, uint64_t configured);

}  // namespace tessera::coordinator
