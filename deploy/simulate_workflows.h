// `tessera simulate --workflows`: agentic workflows on a plan's replicas, beside round-robin.
//
// Thread rule: one call at a time, from main. Reads and writes files; prints nothing. Errors name
// the file or flag, the reason and the fix.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/simulator/plan_replicas.h"
#include "scheduler/simulator/simulator.h"
#include "scheduler/simulator/workflows.h"

namespace tessera::deploy {

struct WorkflowFlags {
  std::string source;               // file of AgentWorkflows, or "generated"; empty: none
  std::string csv;                  // a line per workflow; empty: none
  std::string rests_on;             // what the figures rest on: the first line of the CSV
  double workflows_per_second = 0;  // 0: the file's, else 85 % of capacity
  int64_t workflows = 0;            // drawn; 0: the generator's
  uint64_t seed = 1;                // of the generator
  std::string routing = "tuned";    // or round-robin
  scheduler::TuningOptions tuning;  // its alphas, window and every
};

struct WorkflowsOnPlan {
  std::string table;  // for people
  std::vector<std::string> assumptions;
  scheduler::SimulationResult simulation;  // of their calls
};

absl::StatusOr<WorkflowsOnPlan> SimulateWorkflowsOn(
    const scheduler::PlanReplicas& plan, const std::vector<scheduler::ScheduledChange>& changes,
    const WorkflowFlags& flags);

}  // namespace tessera::deploy
