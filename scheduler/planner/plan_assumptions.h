// Everything a plan takes for granted, one line each, "name = value (origin)": options with their
// defaults, the workload, and where the figures of each device kind come from, estimates told from
// measurements. Thread rule: pure function.
#pragma once

#include <string>
#include <vector>

#include "scheduler/planner/planner_input.h"

namespace tessera::scheduler {

struct AssumedFigures {
  const PlannerInput* input = nullptr;
  const PlannerOptions* options = nullptr;
  const PlacementProblem* problem = nullptr;
  const WorkloadSamples* workload = nullptr;
  int64_t context_tokens = 0;
  bool simulates = false;
  bool interrupted = false;  // or it would
};

std::vector<std::string> Assumptions(const AssumedFigures& figures);

}  // namespace tessera::scheduler
