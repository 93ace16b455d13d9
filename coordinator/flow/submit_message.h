// A generation as a worker is asked for it. Thread rule: a pure function.
#pragma once

#include "coordinator/flow/generation.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

// Holds a Submit without what differs between attempts: submission id, attempt, choices and the
// tokens that are there already.
v1::SessionRequest ToSubmit(const GenerationRequest& request);

}  // namespace tessera::coordinator
