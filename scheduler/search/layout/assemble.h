// Makes a placement of the replicas that a search laid out: whatever the search, they are judged
// and joined here.
//
// Thread rule: one thread per judge. Units: requests per second, USD per hour.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/search/layout/goodput.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// Adds devices and shares. `replicas` have role and stages; the rest is filled in. Split replicas
// share work as far as the links between them carry the KV. FailedPrecondition if a pool is
// overdrawn.
absl::StatusOr<Placement> Assemble(const PlacementProblem& problem,
                                   std::vector<PlacedReplica> replicas);

// The same with a judge of the same problem that may know some of the replicas.
absl::StatusOr<Placement> Assemble(const PlacementProblem& problem,
                                   std::vector<PlacedReplica> replicas, ReplicaJudge* judge);

// Shares of replicas that only prefill or only decode: the most that these and links carry
// together, for goodput of which enough are within their limits (their rates are set, as in
// split_shares.h). `judge` is of the same problem.
absl::StatusOr<std::vector<Share>> ShareSplit(const PlacementProblem& problem,
                                              const ReplicaJudge& judge,
                                              std::vector<PlacedReplica>* replicas);

// Takes out the replicas that nothing is sent to: they would be paid for, and may not even fit.
void LeaveOutIdle(const ClusterGraph& graph, Placement* placement);

// The same search, whose answers have no such replica.
Search WithoutIdle(Search search);

}  // namespace tessera::scheduler
