// Whether something listens at an address, as seen from this machine.
//
// Thread rule: any thread; blocks up to `timeout_seconds`, and while a name is looked up.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace tessera {

// Connects to `address` (host:port, [v6]:port) and closes. UNAVAILABLE says why not; NOT_FOUND: the
// machine answers that nothing listens there; InvalidArgument: it is no such address.
absl::Status Reach(const std::string& address, double timeout_seconds);

}  // namespace tessera
