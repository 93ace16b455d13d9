// The search `best` for goodput: most requests per second of which enough meet their objectives.
//
// Problem: the layouts that serve most are not those that serve most in time; attainment has no
// part in the programs of configuration_search. Idea: candidates come from those programs with the
// limit of TPOT drawn tighter step by step, which gives wider stages, fewer hops and smaller
// batches, so less latency of every kind. Every replica of a candidate is laid out again on its
// devices for goodput itself, stands wherever there are such devices, and a packing program over
// all of them, by their goodput, chooses; whole candidates, split ones among them, stand beside its
// answer. Everything is ranked by the goodput that Assemble finds. The bound is that of the
// throughput with the largest useful TPOT (cost/attainment). Deterministic. Thread rule: pure
// function; borrows its problem. Heuristic: that no better placement is there is not proved.
#pragma once

#include "scheduler/search/problem.h"

namespace tessera::scheduler {

absl::StatusOr<Placement> SearchGoodput(const PlacementProblem& problem);

}  // namespace tessera::scheduler
