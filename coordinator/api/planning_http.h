// The HTTP door of planning, beside the OpenAI endpoints:
//
//   POST /v1/plan        {"cluster": {...}, "model": {"name": "Llama-2-70B"}, "workload": {...}}:
//                        the same documents as `tessera plan` takes, in JSON or YAML, quantities
//                        with their unit; answers with {"plan": ..., "text": table}
//   GET  /v1/plan        the plan in force with what is measured beside what was predicted
//   POST /v1/plan/apply  {"plan": {...}}: puts it in force; answers when all of it serves
//
// All need the admin key (see planning_desk). Thread rule: any thread; never blocks.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "coordinator/api/openapi.h"
#include "coordinator/deployment/planning_desk.h"
#include "coordinator/http/http_server.h"

namespace tessera::coordinator {

inline constexpr std::string_view kPlanPath = "/v1/plan";
inline constexpr std::string_view kApplyPlanPath = "/v1/plan/apply";

// The door's entries in the OpenAPI document. `needs_key`: the desk asks for the admin key.
std::vector<ApiPath> PlanPaths(bool needs_key);

// Whether a request for one of the paths may go on to its handler, by its header: nullopt, or the
// error to answer with (no admin key, another method).
std::optional<HttpResponse> AdmitPlanRequest(const PlanningDesk& desk, const HttpRequest& header);

// Of requests that were admitted. `desk` must outlive the answer.
void HandlePlanRequest(PlanningDesk& desk, std::shared_ptr<HttpExchange> exchange);
void HandleApplyPlan(PlanningDesk& desk, std::shared_ptr<HttpExchange> exchange);

}  // namespace tessera::coordinator
