// A GenerationService that notes what each request was when it has been answered, and otherwise is
// the one behind it.
//
// Thread rule: thread-safe, as the one behind it, which outlives what is started here.
#pragma once

#include <functional>
#include <memory>

#include "coordinator/flow/generation.h"
#include "coordinator/replanning/guarded_watch.h"

namespace tessera::coordinator {

// Requests that ended without an error and were not cancelled.
std::unique_ptr<GenerationService> MakeCountedService(GenerationService& next,
                                                      std::shared_ptr<GuardedWatch> watch,
                                                      std::function<double()> now_seconds);

}  // namespace tessera::coordinator
