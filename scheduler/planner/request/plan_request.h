// A planning request as one message (POST /v1/plan, Planning.Plan) -> the plan and its table.
//
// Thread rule: pure function; takes as long as the search, which `watch` can stop. Errors: those of
// MakePlan, with "request" as the file, but InvalidArgument also where nothing fits, and for what a
// request cannot carry (files: traces come as text).
#pragma once

#include "absl/status/statusor.h"
#include "proto/planning.pb.h"
#include "scheduler/planner/planner_input.h"

namespace tessera::scheduler {

// A request with `models` is answered with one plan for each
// (scheduler/planner/shared/shared_cluster). `served` stands in where the request has no model; a
// model with nothing but a name is looked for in the catalogue. `seen`: drafts whose acceptance was
// measured; it counts where the request's drafts have the same source, and it gives no acceptance.
absl::StatusOr<v1::PlanReply> AnswerPlanRequest(const v1::PlanRequest& request,
                                                const v1::Model& served, SearchWatch watch,
                                                const v1::DraftTerms& seen = {});

}  // namespace tessera::scheduler
