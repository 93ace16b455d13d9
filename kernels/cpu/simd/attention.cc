// Attention in f32: keys and values of any type are widened, queries keep their bits.
#include "kernels/cpu/simd/attention_run.h"
#include "kernels/cpu/simd/simd_kernels.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

constexpr int64_t kAlignFloats = 16;

// A Math of attention_run.h over vectors of floats. C: cache.
template <typename C>
class FloatMath {
 public:
  using Cache = C;
  static constexpr int64_t kRowGroup = 1;
  static constexpr int64_t kRowMultiple = 1;

  static constexpr int64_t PaddedWidth(int64_t head_dim) { return RoundUp(head_dim, kAlignFloats); }
  static constexpr int64_t MaxItemRows(int64_t) { return kMaxQueryRows; }
  static int64_t Floats(int64_t width) { return kMaxQueryRows * width + 2 * kTileKeys * width; }

  FloatMath(float* scratch, int64_t head_dim, int64_t stride)
      : head_dim_(head_dim),
        stride_(stride),
        width_(PaddedWidth(head_dim)),
        q_(scratch),
        key_copies_(q_ + kMaxQueryRows * width_),
        value_copies_(key_copies_ + kTileKeys * width_) {}

  template <typename T>
  void PutQuery(int64_t r, const T* query) {
    Widen(query, q_ + r * width_);
  }
  void PutNoQuery(int64_t) {}
  void LookAhead(const TilePlaces<C>*, bool) {}
  void PutTile(const TilePlaces<C>& places, int64_t count) {
    Put(places.keys, count, key_copies_, keys_);
    Put(places.values, count, value_copies_, values_);
    count_ = count;
  }
  template <typename SeenOf>
  void Attend(int64_t rows, float scale, const SeenOf& seen_of, bool, float* scores,
              const RowState& state, float* corrections) const {
    ScoreTile(q_, rows, width_, keys_, count_, scale, scores);
    if (soft_cap_ > 0) CapTile(rows, count_, soft_cap_, scores);
    for (int64_t r = 0; r < rows; ++r) {
      const auto [begin, end] = seen_of(r);
      corrections[r] =
          SoftmaxRow(scores + r * kTileKeys, begin, end, state.maxima[r], state.totals[r]);
    }
    WeighTile(scores, corrections, rows, values_, count_, width_, state.sums);
  }
  void FoldInto(const RowState& later, int64_t rows, const RowState& sofar) const {
    Fold(later, rows, width_, sofar);
  }
  void Finish(int64_t, float*) const {}
  void Cap(float soft_cap) { soft_cap_ = soft_cap; }

 private:
  // `head_dim_` elements as floats, then zeros up to `width_`.
  template <typename From>
  void Widen(const From* in, float* out) const {
    int64_t d = 0;
    for (; d + kLanes <= head_dim_; d += kLanes) Store(out + d, Load(in + d));
    for (; d < width_; d += kLanes) {
      Store(out + d, d < head_dim_ ? LoadPart(in + d, head_dim_ - d) : Zero());
    }
  }

  // Pointers to padded floats, for whole registers of keys: into the cache itself where they stand
  // so.
  void Put(const C* const* runs, int64_t count, float* copies, const float** floats) const {
    for (int64_t k = 0; k < RoundUp(count, 4); ++k) {
      const C* row = runs[k / kRunKeys] + k % kRunKeys * stride_;
      floats[k] = AsFloats(row, copies + k * width_);
    }
  }

  const float* AsFloats(const C* element, float* copy) const {
    if constexpr (sizeof(C) == sizeof(float)) {
      if (width_ == head_dim_) return element;
    }
    Widen(element, copy);
    return copy;
  }

  const int64_t head_dim_, stride_, width_;
  float* const q_;             // [rows][width]
  float* const key_copies_;    // [keys][width], where they cannot be read in place
  float* const value_copies_;  // same
  const float* keys_[kTileKeys];
  const float* values_[kTileKeys];
  int64_t count_ = 0;
  float soft_cap_ = 0;
};

}  // namespace

int64_t AttentionWorkspaceBytes(const AttentionShape& shape, int threads) {
  if (shape.kv_heads <= 0 || shape.heads < shape.kv_heads) return 0;
  return Layout::Of<FloatMath<float>>(shape, threads).total_bytes;
}

void Attention(const AttentionArgs& args, ThreadPool& pool) {
  WithActivationType(args.q.dtype, [&](auto activation) {
    WithActivationType(args.cache.keys.dtype, [&](auto cached) {
      AttendWith<decltype(activation), FloatMath<decltype(cached)>>(args, pool);
    });
  });
}

}  // namespace tessera::kernels::TESSERA_SIMD_PATH
