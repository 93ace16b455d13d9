// A group whose ranks are processes connected by links, one link between every two of them.
//
// Small sums are one exchange: every rank sends its values to all others and adds everything.
// Larger ones are cut into chunks: every rank gets the others' values of its slice of a chunk, adds
// them in rank order and sends the sum back. Exchanges of large payloads go in rounds of pairs in
// which the lower rank sends first, so no two ranks ever wait for each other to read.
// Contract, thread rule and errors: group.h.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/collectives/group.h"
#include "kernels/links/link.h"

namespace tessera::kernels {

// links[r] leads to rank r; the rank's own is null. They are the group's alone: other frames end
// it, and its end shuts them down. InvalidArgument: more than kMaxGroupSize ranks, a missing link.
absl::StatusOr<std::unique_ptr<Group>> CreateSocketGroup(int rank,
                                                         std::vector<std::shared_ptr<Link>> links,
                                                         const GroupOptions& options);

// The rank that `rank` of `size` meets in a round of a tournament in which every two meet once;
// -1: nobody. Rounds are counted from 0 to TournamentRounds(size) - 1.
int TournamentPartner(int rank, int size, int round);
int TournamentRounds(int size);

}  // namespace tessera::kernels
