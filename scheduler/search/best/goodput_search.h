// The part of `best` for goodput: most requests per second of which enough meet their objectives.
//
// Problem: the layouts that serve most are not those that serve most in time; attainment has no
// part in the programs of configuration_search. Idea: device sets with a role are columns of a
// program that deals devices by goodput (goodput_columns.h). It begins with parts of pools, whole
// pools together and the replicas of the relaxation that bounds the throughput; deals of whole
// columns are judged and learnt from, and the best of them, some that split and one that does not,
// are improved by moves (goodput_moves.h). What serves most in the end has its layouts polished
// (layout_polish.h), the first replicas where there are too many for the budget; of few devices so
// are those of the columns. Up to eight devices begin with what serves most within tighter and
// tighter limits of TPOT, which is exact there; so do more than a hundred, which take no moves.
// Everything is ranked by the goodput that Assemble finds. The bound is that of the throughput with
// the largest useful TPOT (cost/attainment). Deterministic. Thread rule: pure function; borrows its
// problem. Heuristic: that no better placement is there is not proved.
#pragma once

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

absl::StatusOr<Placement> SearchGoodput(const PlacementProblem& problem);

}  // namespace tessera::scheduler
