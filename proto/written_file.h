// Text that is written to a file as a whole.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tessera {

// Replaces what the file holds. UNAVAILABLE names the path and the system's reason, also where the
// disk is full: what is there then may be a part. Thread-safe.
absl::Status WriteFileText(const std::string& path, std::string_view text);

}  // namespace tessera
