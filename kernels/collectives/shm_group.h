// A group whose ranks are processes of one machine: their slots lie in memory that all of them map.
//
// Rank 0 makes the memory (a memfd, sealed against a change of size) and passes it to the others
// over their links, which must be Unix sockets. After that the links carry nothing: a rank that
// waits looks whether a peer's end was closed, so the death of a process ends the group within
// about kLongestSleep (kernels/cpu/futex.h), and faster where its owner calls Abort.
// Contract, thread rule and errors: group.h.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/collectives/group.h"
#include "kernels/collectives/slot_group.h"
#include "kernels/links/link.h"

namespace tessera::kernels {

// links[r] leads to rank r; the rank's own is null. Each rank calls this with the same options;
// rank 0 waits for nobody, the others wait for rank 0, at most options.group.timeout_seconds.
// RESOURCE_EXHAUSTED: no memory; FAILED_PRECONDITION: what came is not this group's memory.
absl::StatusOr<std::unique_ptr<Group>> CreateShmGroup(int rank,
                                                      std::vector<std::shared_ptr<Link>> links,
                                                      const SlotGroupOptions& options);

}  // namespace tessera::kernels
