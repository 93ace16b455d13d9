#include "scheduler/simulator/draft_chooser.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tessera::scheduler {
namespace {

// Even in [0, 1): a step of the generator splitmix64.
double Drawn(uint64_t seed) {
  uint64_t x = seed + 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return std::ldexp(static_cast<double>((x ^ (x >> 31)) >> 11), -53);
}

}  // namespace

int64_t DraftChooser::For(int64_t sequences, double mean_context_tokens) {
  if (!any() || sequences <= 0) return 0;
  const auto rows = static_cast<size_t>(sequences);
  const auto tokens = static_cast<uint64_t>(std::max(0.0, mean_context_tokens));
  const int power = std::min(kContexts - 1, static_cast<int>(std::bit_width(tokens)));
  if (found_.size() <= rows) {
    std::array<int8_t, kContexts> none;
    none.fill(-1);
    found_.resize(rows + 1, none);
  }
  int8_t& found = found_[rows][static_cast<size_t>(power)];
  if (found < 0) {
    const double middle = power == 0 ? 0 : 0.75 * std::ldexp(1.0, power);
    found = static_cast<int8_t>(
        cost_->BestDrafts(DecodeWork(static_cast<double>(sequences), middle), micro_batches_));
  }
  return found;
}

int64_t DraftChooser::Standing(int32_t request, int64_t known_tokens, int64_t drafts) const {
  const auto place = (static_cast<uint64_t>(static_cast<uint32_t>(request)) << 32) ^
                     static_cast<uint64_t>(known_tokens);
  int64_t standing = 0;
  while (standing < drafts && Drawn(place + static_cast<uint64_t>(standing)) < acceptance_)
    ++standing;
  return standing;
}

}  // namespace tessera::scheduler
