#include "scheduler/apportion.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera::scheduler {

std::vector<int64_t> Apportion(int64_t granules, std::span<const double> fractions) {
  const size_t ranks = fractions.size();
  std::vector<int64_t> counts(ranks, 0);
  if (granules < static_cast<int64_t>(ranks)) {
    std::fill_n(counts.begin(), granules, 1);
    return counts;
  }
  const double sum = std::accumulate(fractions.begin(), fractions.end(), 0.0);
  std::vector<double> exact(ranks);
  int64_t dealt = 0;
  for (size_t r = 0; r < ranks; ++r) {
    exact[r] = static_cast<double>(granules) * fractions[r] / sum;
    counts[r] = std::max<int64_t>(1, static_cast<int64_t>(std::floor(exact[r])));
    dealt += counts[r];
  }
  const auto missing = [&](size_t r) { return exact[r] - static_cast<double>(counts[r]); };
  for (; dealt != granules; dealt += dealt < granules ? 1 : -1) {
    size_t at = ranks;
    for (size_t r = 0; r < ranks; ++r) {
      if (dealt < granules ? at == ranks || missing(r) > missing(at)
                           : counts[r] > 1 && (at == ranks || missing(r) < missing(at)))
        at = r;
    }
    counts[at] += dealt < granules ? 1 : -1;
  }
  return counts;
}

}  // namespace tessera::scheduler
