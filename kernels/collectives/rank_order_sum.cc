#include "kernels/collectives/rank_order_sum.h"

#include <algorithm>
#include <array>

namespace tessera::kernels {

void SumInRankOrder(absl::Span<const float* const> contributions, int64_t count, float* out) {
  // Sums stay in the first-level cache, and out is written after all contributions are read.
  std::array<float, 1024> sums;
  for (int64_t begin = 0; begin < count; begin += sums.size()) {
    const auto length = std::min(static_cast<int64_t>(sums.size()), count - begin);
    std::copy_n(contributions[0] + begin, length, sums.begin());
    for (const float* const contribution : contributions.subspan(1)) {
      const float* const values = contribution + begin;
      for (int64_t i = 0; i < length; ++i) sums[i] += values[i];
    }
    std::copy_n(sums.begin(), length, out + begin);
  }
}

}  // namespace tessera::kernels
