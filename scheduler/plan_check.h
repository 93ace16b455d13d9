// The independent validator of plans: whoever loads a plan runs it, and it shares no code with
// whatever wrote the plan. Thread rule: pure function.
#pragma once

#include "absl/status/status.h"
#include "proto/plan.pb.h"

namespace tessera::scheduler {

// INVALID_ARGUMENT naming replica, stage or device and the reason: names are unique, a device is
// used once, every replica's stages cover every layer exactly once and in order, and the ranks of
// every stage cover all query heads, ffn columns, vocabulary rows and experts exactly once and all
// kv heads their query heads need; the first stage holds the embedding, the last the head; routing
// names replicas with fitting roles and its shares sum to at most 1; where byte figures are given,
// they fit what the device offers.
absl::Status CheckPlan(const v1::DeploymentPlan& plan);

}  // namespace tessera::scheduler
