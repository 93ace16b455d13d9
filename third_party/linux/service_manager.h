// What a program says to the service manager that started it (sd_notify(3)): a datagram to the Unix
// socket that $NOTIFY_SOCKET names, a path or an abstract name that begins with @. Thread-safe
// while nobody changes the environment.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace tessera {

// `state` is lines of NAME=VALUE, such as "READY=1" or "STOPPING=1". OK without $NOTIFY_SOCKET,
// where nobody listens. InvalidArgument for a name that is none of a socket, Unavailable where it
// cannot be reached. Does not block: a manager that reads nothing loses the state.
absl::Status NotifyServiceManager(std::string_view state);

}  // namespace tessera
