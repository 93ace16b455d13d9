// The source of plans that the flags ask for: --plan, --cluster, or one replica for each worker.
//
// Thread rule: called once, from main.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/coordinator_options.h"
#include "coordinator/deployment/plan_source.h"
#include "coordinator/flow/draft_counts.h"
#include "proto/model.pb.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

// `models`: those that are served; `configure` and `draft_counts`: of the first, which --cluster is
// for. Errors name the file.
absl::StatusOr<std::unique_ptr<PlanSource>> PlansOfFlags(const CoordinatorOptions& options,
                                                         std::span<const v1::Model> models,
                                                         const v1::ConfigureRequest& configure,
                                                         ReadDraftCounts draft_counts,
                                                         std::function<double()> now_seconds);

// The same error, with the names of the files where plans come from such.
absl::Status InPlanFiles(const CoordinatorOptions& options, const absl::Status& status);

}  // namespace tessera::coordinator
