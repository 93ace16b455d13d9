// Plans that follow each other in one simulation: re-planning, seen from the replicas.
//
// When a plan takes over, replicas that the new one does not keep go at once, as workers that are
// configured again do: their requests go on elsewhere with what they have. Those of the new plan
// come when their weights are there. From then on requests are routed by the new plan's shares
// among those that are ready. What a move takes is the caller's to say
// (scheduler/planner/report/move_cost).
// Thread rule: pure functions. Units: seconds since the start of the simulation.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/simulator/plan_replicas.h"
#include "scheduler/simulator/simulator.h"

namespace tessera::scheduler {

struct PlanTimeline {
  PlanReplicas replicas;                 // of all plans; those of later ones are not ready at first
  std::vector<int> running;              // the last plan's, in its order
  std::vector<double> gone_seconds;      // by replica: when its plan gave it up; infinite: never
  std::vector<ScheduledChange> changes;  // that the moves are
  std::vector<SharesSince> shares;
  std::vector<std::pair<double, double>> usd_per_hour;  // from when on
  double settled_seconds = 0;                           // when the last plan is there as a whole
};

PlanTimeline StartWith(PlanReplicas first);

// How a replica of the next plan comes about.
struct ReplicaSwitch {
  int stays_as = -1;         // of `running` before, that it is; -1: it is new
  double ready_seconds = 0;  // after the switch, where it is new
};

// One entry of `switches` per replica of `next`. Names that are taken get a ' behind them.
// InvalidArgument where the plan before it is not settled yet.
absl::Status SwitchTo(const PlanReplicas& next, std::span<const ReplicaSwitch> switches,
                      double at_seconds, PlanTimeline* timeline);

// Mean price from the start to `end_seconds`.
double MeanUsdPerHour(const PlanTimeline& timeline, double end_seconds);

}  // namespace tessera::scheduler
