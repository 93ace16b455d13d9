// A group of threads of one process, for a process that plays several ranks.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/collectives/group.h"
#include "kernels/collectives/slot_group.h"

namespace tessera::kernels {

// One group object per rank, in rank order. Each may be used, and destroyed, by another thread;
// destroying one ends the group for the others. InvalidArgument: a size outside 1 to kMaxGroupSize,
// wrong options.
absl::StatusOr<std::vector<std::unique_ptr<Group>>> CreateLoopbackGroups(
    int size, const SlotGroupOptions& options = {});

}  // namespace tessera::kernels
