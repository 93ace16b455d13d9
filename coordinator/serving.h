// The coordinator process put together: everything main starts, in order, and stops in reverse.
//
// Thread rule: one thread (main's). Run blocks until a signal; a second signal exits at once.
#pragma once

#include "absl/status/status.h"
#include "coordinator/coordinator_options.h"

namespace tessera::coordinator {

// Serves until SIGINT or SIGTERM, then finishes what runs for --shutdown-timeout. Errors are those
// of start-up.
absl::Status Serve(const CoordinatorOptions& options);

}  // namespace tessera::coordinator
