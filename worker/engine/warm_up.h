// One step before the first request, so that this does not pay for cold memory and code.
//
// Thread rule: the engine's thread, or that which sets it up. Blocks for the step.
#pragma once

#include "absl/status/status.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_core.h"

namespace tessera::worker {

// The error of the step, or of the replica that can run none.
absl::Status WarmUp(EngineCore* core, const Engine::Clock& clock);

}  // namespace tessera::worker
