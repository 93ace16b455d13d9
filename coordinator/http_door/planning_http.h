// The HTTP door of planning, beside the OpenAI endpoints:
//
//   POST /v1/plan        {"cluster": {...}, "model": {"name": "Llama-2-70B"}, "workload": {...}}:
//                        the same documents as `tessera plan` takes, in JSON or YAML, quantities
//                        with their unit; answers with {"plan": ..., "text": table}
//   GET  /v1/plan        the plan in force with what is measured beside what was predicted
//   POST /v1/plan/apply  {"plan": {...}}: puts it in force; answers when all of it serves
//   GET  /v1/cluster     the cluster as it is now, as `tessera status` shows it
//
// All need the admin key (see planning_desk). Thread rule: any thread; never blocks.
#pragma once

#include <functional>
#include <vector>

#include "coordinator/deployment/planning_desk.h"
#include "coordinator/http_door/http_api.h"
#include "proto/coordinator.pb.h"

namespace tessera::coordinator {

// The door's rows in the table of routes. `cluster` describes it now, from any thread. `needs_key`:
// the desk asks for the admin key. `desk` must outlive them and their answers.
std::vector<OtherRoute> PlanRoutes(PlanningDesk& desk, std::function<v1::GetClusterReply()> cluster,
                                   bool needs_key);

}  // namespace tessera::coordinator
