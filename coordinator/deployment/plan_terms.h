// What a plan asks of the workers, held against the model that is served, the coordinator's flags
// and what this build carries out. Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "proto/plan.pb.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

// Rows of a step, and sequences that run at once, where neither a flag nor the plan says them.
inline constexpr int32_t kDefaultBatchedTokens = 512;
inline constexpr int32_t kDefaultSequences = 64;

// UNIMPLEMENTED naming the replica that this build has no way to carry out: a stage of more than
// eight ranks. INVALID_ARGUMENT where a rank holds none of the heads, columns, experts or
// vocabulary rows.
absl::Status CheckCarriedOut(const v1::DeploymentPlan& plan);

// INVALID_ARGUMENT where the plan is not sound, is for another model than `configure` loads, or
// contradicts a flag that is in `configure`; UNIMPLEMENTED where this build does not carry it out.
// Names both sides and the field.
absl::Status CheckPlanTerms(const v1::DeploymentPlan& plan, const v1::ConfigureRequest& configure);

// RESOURCE_EXHAUSTED naming the device and the amounts where the plan gives `worker` more weights,
// KV and activations than the memory that it registered; 0: it did not say.
absl::Status CheckRoom(const v1::PlannedWorker& worker, int64_t registered_bytes);

// Sets in `request` what the plan says about one worker of `replica`: name, role, stage, rank,
// share, types of weights and KV, bytes of the KV pool; rows of a step and sequences where flags
// leave them open. What the plan leaves open stays as the flags have it.
void FillConfigure(const v1::DeploymentPlan& plan, const v1::Replica& replica, int stage, int rank,
                   v1::ConfigureRequest& request);

}  // namespace tessera::coordinator
