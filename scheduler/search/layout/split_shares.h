// Which prefilling replica sends how many requests to which decoding one, so that most are served
// of which enough meet their objectives.
//
// Proposals: decoding replicas carry parts, the same of all, of the most at which their own wait
// and pace leave enough requests in time; each prefilling one then has a largest rate at which what
// it sends to a partner so loaded attains; and the transportation program shares, with all or a
// part of what links carry. Each proposal is then judged as a whole (split_attainment) and drawn
// down to the part at which all its pairs together attain; the one that serves most is taken.
// Heuristic: the proposals are few. Thread rule: pure functions, deterministic. Units: requests per
// second.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/cost/attainment.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// The rates of `replicas` with a role are set, to the most that each serves in a pair. Empty: there
// are no pairs, or none attains.
absl::StatusOr<std::vector<Share>> SharesWithinLimits(const PlacementProblem& problem,
                                                      const AttainmentModel& attainment,
                                                      std::vector<PlacedReplica>* replicas);

// Draws the shares of pairs down until they attain together.
void KeepWithinLimits(const PlacementProblem& problem, const AttainmentModel& attainment,
                      const std::vector<PlacedReplica>& replicas, std::vector<Share>* shares);

}  // namespace tessera::scheduler
