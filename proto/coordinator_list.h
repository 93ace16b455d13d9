// The coordinators that a worker asks, as --coordinator names them.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera {

// "HOST:PORT", or several with commas between, in their order; at least one. INVALID_ARGUMENT names
// the flag and what is wrong with which of them.
absl::StatusOr<std::vector<std::string>> ReadCoordinatorList(std::string_view list);

}  // namespace tessera
