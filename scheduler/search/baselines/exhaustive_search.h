// The search called "exact": every way to deal a few devices to replicas and roles.
//
// Idea: groups are chosen in falling order of (role, devices), so every grouping is met once; one
// whose replicas cannot beat the best even over free links is not assembled. Complexity:
// exponential, so there is a limit on devices. The layouts of the groups are proved best where the
// problem asks for a proof or the work is small; then upper_bound is set, to the best value over
// groupings with links left out, and equals the value where links do not bind. Else the groupings
// are still all tried, with coarse layouts. Deterministic. Errors: FailedPrecondition for too many
// devices, ResourceExhausted where nothing serves.
#pragma once

#include "scheduler/search/layout/device_groups.h"

namespace tessera::scheduler {

struct ExhaustiveOptions {
  int most_devices = 8;            // ours: Bell's numbers grow like that
  int64_t most_proof_work = 1200;  // ours: device sets times roles times layers proved unasked
  GroupLayoutOptions layouts;
};

absl::StatusOr<Placement> SearchExhaustively(const PlacementProblem& problem,
                                             const ExhaustiveOptions& options = {});

}  // namespace tessera::scheduler
