// Lines of memory that attention_tiles.h asks for ahead.
#pragma once

#include "kernels/cpu/simd/attention_bf16.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

// The lines of the next tile, values first, as they are computed. Each is asked for once, in the
// order of memory and evenly over all that a tile takes: memory is busy only while something is
// asked of it, and the processor reads ahead by itself only where lines follow one another at a
// steady pace. Runs are asked for from some lines on, up to those of the tile behind. (Of 33 GB/s
// that two cores read, asking by bursts left 18, evenly 24, some lines on 27.)
class AskedLines {
 public:
  void Begin(const TilePlaces<BFloat16>& next, const TilePlaces<BFloat16>& after, int64_t stride) {
    const int64_t lines = kRunKeys * stride / kLineElements;
    const int64_t lead = Smaller(kLead, lines / 2);
    const auto put = [&](Part* to, const BFloat16* const* runs, const BFloat16* behind) {
      to[0] = {runs[0] + lead * kLineElements, lines - lead};
      for (int i = 1; i < kTileRuns; ++i) to[i] = {runs[i], lines};
      to[kTileRuns] = {behind, lead};
    };
    put(parts_, next.values, after.values[0]);
    put(parts_ + kParts, next.keys, after.keys[0]);
    parts_[kEnd] = {after.keys[0], 0};
    part_ = parts_;
    Enter();
  }

  template <int kLines>
  [[gnu::always_inline]] void Ask() {
#pragma GCC unroll 8
    for (int i = 0; i < kLines; ++i) AskFor(place_ + i * kLineElements);
    place_ += kLines * kLineElements;
    left_ -= kLines;
    if (left_ <= 0 && part_ != parts_ + kEnd) {
      ++part_;
      Enter();
    }
  }
  // Fewer where there are not so many left.
  void AskUpTo(int64_t lines) {
    for (; lines > 0 && left_ > 0; --lines) Ask<1>();
  }

 private:
  static constexpr int64_t kLead = 16;
  static constexpr int kParts = kTileRuns + 1;  // of values, and of keys
  static constexpr int kEnd = 2 * kParts;
  struct Part {
    const BFloat16* place;
    int64_t lines;
  };

  void Enter() {
    place_ = part_->place;
    left_ = part_->lines;
  }

  Part parts_[kEnd + 1];  // all that a tile asks for, and an end
  const Part* part_ = parts_;
  const BFloat16* place_ = nullptr;
  int64_t left_ = 0;
};

}  // namespace
}  // namespace tessera::kernels::TESSERA_SIMD_PATH
