// The source of the drafts that an engine tries, from its Configure message.
//
// Thread rule: pure but for the log.
#pragma once

#include "absl/status/status.h"
#include "proto/worker.pb.h"
#include "worker/engine/engine_admission.h"

namespace tessera::worker {

// Sets draft_source and max_drafts, and makes room for the logits of drafts, where no plan has
// given the memory away. A model whose layers keep states drafts nothing, and the log says so: a
// state cannot take back a draft that does not stand. InvalidArgument for values that are none.
absl::Status ReadDrafts(const v1::ConfigureRequest& request, EngineOptions* options);

}  // namespace tessera::worker
