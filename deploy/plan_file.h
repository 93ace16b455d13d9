// plan.json: proto3 JSON with field names as in plan.proto.
//
// Thread rule: pure functions but for reading the file. Errors name the file and the reason.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/plan.pb.h"

namespace tessera::deploy {

// The same plan gives the same bytes.
absl::StatusOr<std::string> PlanJson(const v1::DeploymentPlan& plan);

// InvalidArgument also for a plan that plan_check refuses.
absl::StatusOr<v1::DeploymentPlan> ReadPlanFile(const std::string& path);

// Whether a file may be written at `path`, found out before the work whose answer it takes; nothing
// is written. The error names path and reason.
absl::Status CheckCanWrite(const std::string& path);

}  // namespace tessera::deploy
