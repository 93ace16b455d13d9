// The best placement that was found all of whose replicas only prefill or only decode: what stands
// beside a plan that does not split, whether or not splitting pays.
//
// Idea: the configuration program without columns that do both, made whole and put on machines, as
// in class_search.h, until no pair of roles fits what is left. Its columns know no links for KV, so
// it is planned on all groups at once and group by group; a third start is all devices cut in two.
// Then roles and devices change hands between replicas as long as more is served, links included
// (rate_program.h), or as much with more left to spare: changes that help need room that one before
// them made. Those that replicas without links could not make up for are not looked at. Heuristic,
// throughput only; deterministic: budgets count rounds and placements. Thread rule: pure function.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// Devices above which nothing is split: every pair of replicas would be a link.
inline constexpr int kSplitUpTo = 1000;

// None: no two replicas were found that hold the model, or requests have no tokens to decode.
std::optional<Placement> SplitPlacement(const PlacementProblem& problem);

// The same as a search. ResourceExhausted: none; InvalidArgument: for a goal other than throughput,
// or more than kSplitUpTo devices.
absl::StatusOr<Placement> SplitSearch(const PlacementProblem& problem);

// What the same changes make of a placement, of which replicas may also do both; `start` where none
// of them helps.
Placement ImproveSplit(const PlacementProblem& problem, Placement start);

}  // namespace tessera::scheduler
