// What the links of a group must be, whatever its kind. Pure functions, thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/links/link.h"

namespace tessera::kernels {

// InvalidArgument: not 1 to kMaxGroupSize ranks, a rank outside them, links[r] missing or, for
// r == rank, given.
absl::Status CheckGroupLinks(int rank, const std::vector<std::shared_ptr<Link>>& links);

}  // namespace tessera::kernels
