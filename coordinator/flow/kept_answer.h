// Which answers workers keep beyond their stream, and how a request goes on with one (docs/api.md,
// "Broken streams").
//
// Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "coordinator/flow/generation.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

// INVALID_ARGUMENT naming what keeps the answer to such a request from being resumed.
absl::Status CheckResumable(const GenerationRequest& request);

// Has `request` go on with what is kept: its seed, and emitted_token_ids. INVALID_ARGUMENT naming
// what differs where this is not the request that was answered; what only forms the text that the
// client sees (stop strings, tools) may differ.
absl::Status GoOnFrom(const v1::KeptAnswer& kept, GenerationRequest& request);

}  // namespace tessera::coordinator
