// The one place where contributions of ranks are added. Pure function, thread-safe.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace tessera::kernels {

// out[i] = ((contributions[0][i] + contributions[1][i]) + contributions[2][i]) + ..., for i below
// count. out may be one of the contributions.
void SumInRankOrder(absl::Span<const float* const> contributions, int64_t count, float* out);

}  // namespace tessera::kernels
