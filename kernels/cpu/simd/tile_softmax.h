// The softmax of attention_tiles.h: 16 rows side by side in a register, key by key.
//
// A row's weights are relative to a reference near its largest score. It is set by the first tile
// that the row sees, and moved to a tile's largest score where a weight would pass 2^8: f32 sums
// and bf16 weights are as exact there, and of many rows most tiles need neither a pass for their
// largest score nor a correction of what was summed before.
#pragma once

#include "kernels/cpu/avx512_transpose.h"
#include "kernels/cpu/simd/attention_bf16.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

constexpr int kGroupRows = 16;        // rows that share a register of scores
constexpr int64_t kProductKeys = 32;  // of one product of weights and values
constexpr int kProductPairs = kProductKeys / 2;
constexpr float kStepsOfOne = 1.44269504088896341f * kSteps;  // of a score
constexpr int kHighestSteps = static_cast<int>(kStepsToOne) + 8 * static_cast<int>(kSteps);

// Which keys of a tile the rows of a group see: for each row those of [begin, end).
class SeenByRow {
 public:
  template <typename SeenOf>
  SeenByRow(const SeenOf& seen_of, int64_t first_row) {
    alignas(64) int32_t begin[kGroupRows], end[kGroupRows];
    for (int i = 0; i < kGroupRows; ++i) {
      const auto [from, to] = seen_of(first_row + i);
      begin[i] = static_cast<int32_t>(from);
      end[i] = static_cast<int32_t>(to);
    }
    begin_ = _mm512_load_si512(begin);
    end_ = _mm512_load_si512(end);
  }
  [[gnu::always_inline]] VecMask operator()(int key) const {
    const __m512i at = _mm512_set1_epi32(key);
    return _mm512_cmpge_epi32_mask(at, begin_) & _mm512_cmplt_epi32_mask(at, end_);
  }

 private:
  __m512i begin_, end_;
};

// What is kept of a group's rows between tiles, and what their sums must be multiplied with.
struct GroupSums {
  float* references;  // -inf: saw nothing yet
  float* totals;      // of the weights as rounded
  float* corrections;
};

// Moves references that a tile's products [key][row] would leave too far behind. A row that sees a
// product which is not finite gets NaN as its correction: weights do not tell. Never inlined: where
// it is rare, its registers are those of the loop around it.
template <typename Seen, typename Ask>
[[gnu::noinline]] void MoveReferences(const float* products, float scale, const Seen& seen,
                                      const Ask& ask, Vec base, const GroupSums& sums) {
  const Vec none = Set(-__builtin_inff());
  Vec largest[4] = {none, none, none, none};
  Vec added[4] = {Zero(), Zero(), Zero(), Zero()};
#pragma GCC unroll 2
  for (int key = 0; key < kTileKeys; key += 4) {
    ask(key);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Vec product = Load(products + (key + j) * kLanes);
      largest[j] = Max(largest[j], Select(seen(key + j), product, none));
      added[j] = Add(added[j], Select(seen(key + j), product, Zero()));
    }
  }
  const Vec product = Max(Max(largest[0], largest[1]), Max(largest[2], largest[3]));
  const Vec sum = Add(Add(added[0], added[1]), Add(added[2], added[3]));
  const Vec unsound = Mul(sum, Zero());  // 0 or NaN
  const Vec before = Load(sums.references);
  // The very rows whose weights would pass the highest: rounding to whole steps is monotonic.
  const Vec steps = Fma(product, Mul(Set(kStepsOfOne), Set(scale)), base);
  const VecMask moved = Above(steps, Set(kHighestSteps + 0.5f)) | Equal(before, none);
  const Vec next = Select(moved, Mul(product, Set(scale)), before);
  const Vec correction =
      Add(Select(Equal(before, next), Set(1.0f), Exp(Sub(before, next))), unsound);
  Store(sums.references, next);
  Store(sums.corrections, correction);
  Store(sums.totals, Mul(Load(sums.totals), correction));
}

// Weights of a group's products with keys, times `scale`, as pairs of bf16, 0 where a row does not
// see a key: [kProductKeys keys][pair][row], or [kProductKeys keys][row][pair] (kTurned). Returns
// whether sums so far must be corrected. bounded: no product can be anything but a moderate
// number. Each row's bits are its own, whatever `bounded` is. ask(key) is called for every four
// keys, twice where references are moved.
template <bool kTurned, typename Seen, typename Ask>
[[gnu::always_inline]] inline bool SoftmaxOfGroup(const float* products, float scale, bool bounded,
                                                  const Seen& seen, const Ask& ask,
                                                  uint32_t* weights, const GroupSums& sums) {
  const Vec none = Set(-__builtin_inff());
  const auto base_of_group = [&] {
    const Vec reference = Load(sums.references);
    // Where nothing was seen yet every weight is 0, whatever is subtracted.
    const Vec least = Select(Equal(reference, none), Zero(), reference);
    return Sub(Set(kStepsToOne), Mul(least, Set(kStepsOfOne)));
  };
  Vec base = base_of_group();
  const auto move = [&] {
    MoveReferences(products, scale, seen, ask, base, sums);
    base = base_of_group();
  };
  bool moved = !bounded || Bits(Equal(Load(sums.references), none)) != 0;
  if (moved) [[unlikely]]
    move();

  const PowersOfTwo powers;
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80));
  const Vec factor = Mul(Set(kStepsOfOne), Set(scale));
  for (;; moved = true) {
    Vec added[2] = {Zero(), Zero()};
    __m512i highest = _mm512_setzero_si512();
    for (int first = 0; first < kTileKeys; first += kProductKeys) {
      const auto steps = [&](int key) {
        const Vec exact = Fma(Load(products + key * kLanes), factor, base);
        return _mm512_maskz_cvtps_epi32(seen(key), exact);
      };
      __m512i pairs[kProductPairs];
#pragma GCC unroll 16
      for (int i = 0; i < kProductPairs; i += 2) {
        const int key = first + 2 * i;
        ask(key);
        const __m512i even = powers.Of(steps(key), steps(key + 2));
        const __m512i odd = powers.Of(steps(key + 1), steps(key + 3));
        highest = _mm512_max_epu16(highest, _mm512_max_epu16(even, odd));
        pairs[i] = _mm512_unpacklo_epi16(even, odd);
        pairs[i + 1] = _mm512_unpackhi_epi16(even, odd);
        added[0] = _mm512_dpbf16_ps(added[0], reinterpret_cast<__m512bh>(pairs[i]), ones);
        added[1] = _mm512_dpbf16_ps(added[1], reinterpret_cast<__m512bh>(pairs[i + 1]), ones);
      }
      if constexpr (kTurned) cpu::Transpose(pairs);
#pragma GCC unroll 16
      for (int i = 0; i < kProductPairs; ++i) {
        _mm512_store_si512(weights + (first / 2 + i) * kLanes, pairs[i]);
      }
    }
    // What is moved stays: scores of 10^8 have no steps of 1 any more.
    const bool passed = _mm512_cmpgt_epu16_mask(highest, _mm512_set1_epi16(kHighestSteps)) != 0;
    if (moved || !passed) [[likely]] {
      Store(sums.totals, Add(Load(sums.totals), Add(added[0], added[1])));
      return moved;
    }
    move();
  }
}

}  // namespace
}  // namespace tessera::kernels::TESSERA_SIMD_PATH
