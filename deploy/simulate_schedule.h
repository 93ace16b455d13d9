// What happens to a simulated deployment meanwhile, as flags of `tessera simulate` say it: losses,
// returns, stragglers (--change), and other plans that take over (--replan).
//
// Thread rule: pure functions, but for reading plan files. Errors name the flag, its text, the
// reason and the fix.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/plan_command.h"
#include "proto/plan.pb.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/simulator/plan_switch.h"

namespace tessera::deploy {

struct ScheduleFlags {
  std::vector<std::string> changes;  // "r0 lost 10 s", "r0 back 40 s", "r1 slow 2.5 5 s"
  // "next.json at 60 s", "next.json after r0 lost 5 s"; for a file "new": a plan made then for the
  // machines that no lost replica stands on.
  std::vector<std::string> replans;
};

struct SimulationSchedule {
  scheduler::PlanTimeline timeline;                 // of the plan and those that follow
  std::vector<scheduler::ScheduledChange> changes;  // of both flags
  std::vector<std::string> assumptions;
};

// `replicas` are those of `plan`.
absl::StatusOr<SimulationSchedule> ReadSchedule(const ScheduleFlags& flags,
                                                const v1::DeploymentPlan& plan,
                                                scheduler::PlanReplicas replicas,
                                                const PlanQuestion& question,
                                                const scheduler::ClusterGraph& graph,
                                                const scheduler::PlanReplicaOptions& options);

}  // namespace tessera::deploy
