// The best placement that was found all of whose replicas only prefill or only decode: what stands
// beside a plan that does not split, whether or not splitting pays.
//
// Idea: the configuration program without columns that do both, made whole and put on machines, as
// in class_search.h, until no pair of roles fits what is left. Its columns know no links for KV, so
// it is planned on all sites at once and site by site; a third start is all devices cut in two.
// Then roles and devices change hands between replicas as long as Assemble, which knows the links,
// says that more is served. Heuristic, throughput only; deterministic: budgets count rounds and
// layouts. Thread rule: pure function.
#pragma once

#include <optional>

#include "scheduler/search/problem.h"

namespace tessera::scheduler {

// None: no two replicas were found that hold the model, or requests have no tokens to decode.
std::optional<Placement> SplitPlacement(const PlacementProblem& problem);

}  // namespace tessera::scheduler
