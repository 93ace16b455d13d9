// Starting a thread where the system may have no more of them.
//
// Thread rule: may be called from any thread. The caller joins what it gets.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"

namespace tessera::worker {

// ResourceExhausted names the thread ("the thread that ...") and the system's reason.
absl::StatusOr<std::thread> StartThread(std::string_view name, std::function<void()> body);

}  // namespace tessera::worker
