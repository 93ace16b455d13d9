// What one user alone sees of a placement, and the placements that answer one user soonest.
//
// Idea: a replica that runs one sequence at once serves most where its answers come soonest, so the
// layout search finds the stages with the least time of an answer when it may run only one. Every
// machine is laid out by itself, and all together where they are few or no machine holds the model
// alone; pipelines over unlike devices join them where they are sooner by a tenth. The fastest
// replica stands alone, and beside as many as fit of those that are as fast.
// Thread rule: pure functions, deterministic. Units: seconds.
#pragma once

#include <vector>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// Means over the requests of the workload, each alone in the deployment: at batch 1.
struct AloneTimes {
  double ttft_seconds = 0;
  double tpot_seconds = 0;
  double answer_seconds = 0;  // from arrival to the last token
};

// Without the time that KV travels between split replicas.
AloneTimes TimesAlone(const PlacementProblem& problem, const Placement& placement);

// Judged as the problem says, the soonest first; of equally fast ones, the one that serves most.
// Empty: nothing fits that does not split.
std::vector<Placement> FastestPlacements(const PlacementProblem& problem);
// The same for who knows MixedPipelines(problem). Null: no stage may be over unlike devices.
std::vector<Placement> FastestPlacements(const PlacementProblem& problem,
                                         const std::vector<PlacedReplica>* pipelines);

}  // namespace tessera::scheduler
