// The source of the drafts that an engine tries, from its Configure message.
//
// Thread rule: pure.
#pragma once

#include "absl/status/status.h"
#include "proto/worker.pb.h"
#include "worker/engine/engine_admission.h"
#include "worker/model/model_dtypes.h"
#include "worker/weights/model_options.h"

namespace tessera::worker {

// Sets draft_source and max_drafts, and makes room for the logits of drafts, where no plan has
// given the memory away. InvalidArgument for values that are none.
absl::Status ReadDrafts(const v1::ConfigureRequest& request, EngineOptions* options);

// Sets the types of the draft model, where the share has it. Its keys and values are of the
// model's type.
absl::Status ReadDraftTypes(const v1::ConfigureRequest& request, const HalfTypes& computed,
                            ModelOptions* options);

}  // namespace tessera::worker
