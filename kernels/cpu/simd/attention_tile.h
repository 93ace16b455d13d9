// The arithmetic of attention over one tile of keys, in registers.
//
// The orders of the sums are those that attention_run.h asks for.
#pragma once

#include "kernels/cpu/simd/attention_plan.h"
#include "kernels/cpu/simd/vector.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

// scores[row][key] = scale * q[row] . keys[key], for `Rows` rows and 4 keys.
template <int Rows>
[[gnu::always_inline]] inline void ScoreBlock(const float* q, int64_t q_stride,
                                              const float* const* keys, int64_t width, __m128 scale,
                                              float* scores) {
  Vec sums[Rows][4];
  for (int r = 0; r < Rows; ++r) {
    for (int k = 0; k < 4; ++k) sums[r][k] = Zero();
  }
  for (int64_t d = 0; d < width; d += kLanes) {
    const Vec k0 = Load(keys[0] + d), k1 = Load(keys[1] + d);
    const Vec k2 = Load(keys[2] + d), k3 = Load(keys[3] + d);
    for (int r = 0; r < Rows; ++r) {
      const Vec x = Load(q + r * q_stride + d);
      sums[r][0] = Fma(x, k0, sums[r][0]);
      sums[r][1] = Fma(x, k1, sums[r][1]);
      sums[r][2] = Fma(x, k2, sums[r][2]);
      sums[r][3] = Fma(x, k3, sums[r][3]);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    const __m128 four = ReduceAdd4(sums[r][0], sums[r][1], sums[r][2], sums[r][3]);
    _mm_storeu_ps(scores + r * kTileKeys, _mm_mul_ps(four, scale));
  }
}

// q: [rows][width], width a multiple of kLanes; keys: kTileKeys pointers to width floats, of which
// the first `count` (rounded up to 4) are read.
inline void ScoreTile(const float* q, int64_t rows, int64_t width, const float* const* keys,
                      int64_t count, float scale, float* scores) {
  const __m128 factor = _mm_set1_ps(scale);
  for (int64_t k = 0; k < count; k += 4) {
    int64_t r = 0;
    for (; r + kScoreRows <= rows; r += kScoreRows) {
      ScoreBlock<kScoreRows>(q + r * width, width, keys + k, width, factor,
                             scores + r * kTileKeys + k);
    }
    for (; r < rows; ++r) {
      ScoreBlock<1>(q + r * width, width, keys + k, width, factor, scores + r * kTileKeys + k);
    }
  }
}

// Scores of `count` keys, rounded up to 4 and a register, become cap * tanh(score / cap).
inline void CapTile(int64_t rows, int64_t count, float cap, float* scores) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = scores + r * kTileKeys;
    for (int64_t k = 0; k < count; k += kLanes) {
      Store(row + k, Mul(Tanh(Div(Load(row + k), Set(cap))), Set(cap)));
    }
  }
}

// Turns a row's scores of the keys [begin, end) of the tile into weights exp(score - maximum), all
// others into 0; moves the running maximum and total; returns what the sums so far must be
// multiplied with.
inline float SoftmaxRow(float* scores, int64_t begin, int64_t end, float& maximum, float& total) {
  Vec largest = Set(-__builtin_inff());
  for (int64_t k = 0; k < kTileKeys; k += kLanes) {
    const VecMask seen = LanesBetween(begin - k, end - k);
    largest = Max(largest, Select(seen, Load(scores + k), Set(-__builtin_inff())));
  }
  const float tile_largest = ReduceMax(largest);
  const float next = tile_largest > maximum ? tile_largest : maximum;
  Vec sum = Zero();
  for (int64_t k = 0; k < kTileKeys; k += kLanes) {
    const VecMask seen = LanesBetween(begin - k, end - k);
    const Vec weight = Select(seen, Exp(Sub(Load(scores + k), Set(next))), Zero());
    Store(scores + k, weight);
    sum = Add(sum, weight);
  }
  const float correction = next == maximum ? 1.0f : ExpOne(maximum - next);
  total = __builtin_fmaf(total, correction, ReduceAdd(sum));
  maximum = next;
  return correction;
}

// sums[row][d] = sums[row][d] * corrections[row] + sum over keys of weights[row][key] *
// values[key][d], for `Rows` rows and `Vectors` vectors of d.
template <int Rows, int Vectors>
[[gnu::always_inline]] inline void WeighBlock(const float* weights, const float* corrections,
                                              const float* const* values, int64_t count, int64_t d,
                                              int64_t width, float* sums) {
  Vec acc[Rows][Vectors];
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) {
      acc[r][v] = Mul(Load(sums + r * width + d + v * kLanes), Set(corrections[r]));
    }
  }
  for (int64_t k = 0; k < count; ++k) {
    Vec value[Vectors];
    for (int v = 0; v < Vectors; ++v) value[v] = Load(values[k] + d + v * kLanes);
    for (int r = 0; r < Rows; ++r) {
      const Vec weight = Set(weights[r * kTileKeys + k]);
      for (int v = 0; v < Vectors; ++v) acc[r][v] = Fma(weight, value[v], acc[r][v]);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) Store(sums + r * width + d + v * kLanes, acc[r][v]);
  }
}

template <int Vectors>
[[gnu::always_inline]] inline void WeighColumns(const float* weights, const float* corrections,
                                                int64_t rows, const float* const* values,
                                                int64_t count, int64_t d, int64_t width,
                                                float* sums) {
  int64_t r = 0;
  for (; r + kScoreRows <= rows; r += kScoreRows) {
    WeighBlock<kScoreRows, Vectors>(weights + r * kTileKeys, corrections + r, values, count, d,
                                    width, sums + r * width);
  }
  for (; r < rows; ++r) {
    WeighBlock<1, Vectors>(weights + r * kTileKeys, corrections + r, values, count, d, width,
                           sums + r * width);
  }
}

// values: pointers to width floats, of which the first `count` are read.
inline void WeighTile(const float* weights, const float* corrections, int64_t rows,
                      const float* const* values, int64_t count, int64_t width, float* sums) {
  int64_t d = 0;
  for (; d + 4 * kLanes <= width; d += 4 * kLanes) {
    WeighColumns<4>(weights, corrections, rows, values, count, d, width, sums);
  }
  for (; d < width; d += kLanes) {
    WeighColumns<1>(weights, corrections, rows, values, count, d, width, sums);
  }
}

// What is known of a row after some keys: sums of weighted values, relative to the maximum score.
struct RowState {
  float* sums;  // [rows][width]
  float* maxima;
  float* totals;
};

// Where all that a row saw is NaN it has no maximum, but a total of NaN.
inline VecMask SawNothing(Vec maxima, Vec totals) {
  return Equal(Select(Equal(totals, Zero()), maxima, Zero()), Set(-__builtin_inff()));
}

// What becomes of the sums of a register of rows where `later` is put on top of `sofar`, whose
// maxima and totals are moved on. There is room for whole registers.
struct Shares {
  Vec kept, taken;  // of the sums so far, and the later ones
  VecMask empty;    // saw no key later: nothing changes
};
inline Shares FoldTotals(const RowState& later, int64_t r, const RowState& sofar) {
  const Vec later_maxima = Load(later.maxima + r), maxima = Load(sofar.maxima + r);
  const Vec totals = Load(sofar.totals + r);
  const Vec next = Max(later_maxima, maxima);
  const Shares shares = {.kept = Exp(Sub(maxima, next)),
                         .taken = Exp(Sub(later_maxima, next)),
                         .empty = SawNothing(later_maxima, Load(later.totals + r))};
  const Vec sum = Fma(totals, shares.kept, Mul(Load(later.totals + r), shares.taken));
  Store(sofar.totals + r, Select(shares.empty, totals, sum));
  Store(sofar.maxima + r, Select(shares.empty, maxima, next));
  return shares;
}

// Puts `later` on top of `sofar`, at most kMaxQueryRows. Never inlined: every caller must get the
// same instructions.
[[gnu::noinline]] inline void Fold(const RowState& later, int64_t rows, int64_t width,
                                   const RowState& sofar) {
  alignas(64) float keep[kMaxQueryRows], take[kMaxQueryRows];
  for (int64_t r = 0; r < rows; r += kLanes) {
    const Shares shares = FoldTotals(later, r, sofar);
    Store(keep + r, shares.kept);
    Store(take + r, shares.taken);
  }
  for (int64_t r = 0; r < rows; ++r) {
    if (later.maxima[r] == -__builtin_inff() && later.totals[r] == 0) continue;
    for (int64_t d = 0; d < width; d += kLanes) {
      float* sum = sofar.sums + r * width + d;
      const Vec taken = Mul(Load(later.sums + r * width + d), Set(take[r]));
      Store(sum, Fma(Load(sum), Set(keep[r]), taken));
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::TESSERA_SIMD_PATH
