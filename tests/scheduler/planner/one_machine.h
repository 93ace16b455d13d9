// What the planner is asked about one machine, for a model that is not built in.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "scheduler/planner/planner.h"
#include "scheduler/planner/preference.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::tests {

// `devices`: "{kind: L40S, count: 2}, ...".
inline scheduler::PlannerInput OneMachine(const std::string& devices, const v1::Model& model) {
  scheduler::PlannerInput input =
      WrittenInput("machines: [{name: a, devices: [" + devices + "]}]", "Llama-3-8B");
  input.model = model;
  return input;
}

// The usual preference; finalists are not simulated.
inline scheduler::PlannerOptions Unsimulated() {
  scheduler::PlannerOptions options;
  options.preference = scheduler::UsualPreference();
  options.simulate = false;
  return options;
}

}  // namespace tessera::tests
