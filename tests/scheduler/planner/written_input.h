// What the planner is asked, from texts as people write them.
#pragma once

#include <string>

#include "scheduler/planner/planner.h"

namespace tessera::tests {

// With the built-in devices and a built-in model; the texts are c.yaml and w.yaml to whoever
// complains of them. Fails the test that gives texts which cannot be read.
scheduler::PlannerInput WrittenInput(
    const std::string& cluster, const std::string& model,
    const std::string& workload =
        "classes: [{lengths: [{prompt_tokens: 1000, output_tokens: 200}]}]");

}  // namespace tessera::tests
