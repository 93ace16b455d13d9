// Workflows that people describe (proto/workload.proto, AgentWorkflows) -> what the simulator runs.
//
// Thread rule: pure functions. Units: seconds, tokens. Errors: InvalidArgument naming file,
// workflow and reason.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/workload.pb.h"
#include "scheduler/simulator/workflows.h"

namespace tessera::scheduler {

// Those written down, by arrival.
absl::StatusOr<std::vector<Workflow>> WorkflowsOf(const v1::AgentWorkflows& described,
                                                  std::string_view file);

// The generator's figures, defaults for those that are not given.
absl::StatusOr<WorkflowProcess> ProcessOf(const v1::AgentGenerator& generator,
                                          std::string_view file);

// The mean call of all of them: what is expected of one whose output nobody knows.
WorkflowCall MeanCall(const std::vector<Workflow>& workflows);

}  // namespace tessera::scheduler
