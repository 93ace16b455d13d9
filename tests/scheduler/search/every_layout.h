// Every ordered list of stages on given pools, for the oracles of the searches. Shares the cost
// model and the problem's types with these and nothing else. Deterministic.
#pragma once

#include <functional>
#include <vector>

#include "scheduler/search/layout/stage_layout.h"

namespace tessera::tests {

// Stages of any pool, width and layers that together hold the model; devices may stay idle.
void ForEveryLayout(
    const scheduler::LayoutProblem& problem,
    const std::function<void(const std::vector<scheduler::LayoutStage>& stages)>& visit);

// The replica that these stages are, of the problem's role.
scheduler::ReplicaSpec ReplicaOf(const scheduler::LayoutProblem& problem,
                                 const std::vector<scheduler::LayoutStage>& stages);

}  // namespace tessera::tests
