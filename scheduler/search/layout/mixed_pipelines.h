// Pipelines whose stages may be over unlike devices, laid out for one user.
//
// Problem: a sequence alone passes the stages one after the other, so its answer takes as long as
// all of their steps and hops together. Choose an ordered list of stages, each a set of devices
// with some consecutive layers, with the least such time; devices may stay idle. Idea: a set of
// unlike devices takes, for every number of layers, the seconds of its best cut that has room
// there, so it is a stage like any other. A dynamic program over (layers done, devices used of each
// pool, machine of the last stage) keeps the least sum; numbers of layers that have no room there,
// or leave too many for the rest, are passed over; machines that are just alike are used in order,
// for all orders are the same. Part of the square of a stage's seconds is added: of pipelines that
// take nearly as long the even one is taken, which serves more users. Prompts that need several
// steps are counted as equal steps, one after the other. Thread rule: pure functions,
// deterministic. Cost: some 4 million steps of the program, tens of milliseconds.
#pragma once

#include <vector>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// Replicas of two stages and more, of role both, without rates: the soonest for one user that have
// room for eight sequences of full length, or where none has for one; and one that loads its stages
// more evenly. Up to 16 devices all machines may take part, as long as their devices can be in use
// in no more than 1,100 ways, like machines counted in order: six like machines of two unlike
// devices, or five unlike ones. Beyond, the fastest that hold the model, in up to 4,096 ways.
// Empty: these are more; no stage over unlike devices, or over two machines of three and more, can
// be; or nothing fits.
std::vector<PlacedReplica> MixedPipelines(const PlacementProblem& problem);

}  // namespace tessera::scheduler
