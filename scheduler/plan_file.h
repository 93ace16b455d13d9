// plan.json: proto3 JSON with field names as in plan.proto, written by `tessera plan`, read by
// whoever carries the plan out. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/plan.pb.h"

namespace tessera::scheduler {

inline constexpr int64_t kMaxPlanBytes = int64_t{64} << 20;  // of a file; readers refuse more

// A plan that CheckPlan accepts and that can be printed. InvalidArgument, naming `file`, for text
// of any other kind.
absl::StatusOr<v1::DeploymentPlan> ParsePlan(std::string_view text, std::string_view file);

}  // namespace tessera::scheduler
