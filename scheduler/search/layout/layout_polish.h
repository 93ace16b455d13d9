// Layouts near those of a placement for goodput: what searches that lay out for rate leave.
//
// Problem: layouts come from programs that maximise the rate, within limits of TPOT at best. Where
// the latencies bind, other orders, cuts of layers and widths of the same devices serve more in
// time. Idea: one replica after the other, all layouts a step away (two stages change places, one
// goes elsewhere, one gives a layer to another, one is cut in two side by side, two become one),
// each judged by its goodput, the best taken as long as it serves more. Replicas that only prefill
// or decode are judged with their partners. Deterministic: the budget counts judgements. Thread
// rule: one thread at a time; borrows everything.
#pragma once

#include <cstdint>

#include "scheduler/search/layout/goodput.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// Role both, with its goodput as its rate. Of *left judgements those are taken that it needs.
PlacedReplica PolishReplica(const PlacementProblem& problem, PlacedReplica replica,
                            ReplicaJudge* judge, int64_t* left);

// Serves at least what `placement` does.
Placement PolishLayouts(const PlacementProblem& problem, Placement placement, ReplicaJudge* judge,
                        int64_t most_judged);

}  // namespace tessera::scheduler
