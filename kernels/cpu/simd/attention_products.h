// The products of attention_dot.cc, in registers: of queries with keys and of weights with values,
// while lines of the tiles to come are asked for.
#pragma once

#include "kernels/cpu/simd/attention_bf16.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

constexpr int kGroup = 8;          // rows that share registers
constexpr int kWordsTogether = 2;  // of a row or key, in one product
constexpr int kBlockRows = 4;      // rows of accumulators, each of up to 4 registers
constexpr int kVectors = 4;
constexpr int64_t kWideElements = kVectors * kLanes;  // of values that a pass turns

// Sums of two keys, in lanes [row][even or odd words], to products, in lanes [row][key].
inline Vec AddWords(Vec first_key, Vec second_key) {
  constexpr VecMask kEven = 0x5555, kOdd = 0xaaaa;
  const Vec crossed = _mm512_mask_blend_ps(kEven, first_key, second_key);
  return Add(_mm512_mask_blend_ps(kOdd, first_key, second_key), _mm512_permute_ps(crossed, 0xb1));
}

// Products of kGroups groups of rows and kKeys keys, `stride` elements apart: [g][pair of
// keys][lane]. q: [g][two words][lane]; words: a multiple of kWordsTogether.
template <int kGroups, int kKeys>
[[gnu::always_inline]] inline void ScoreBlock(const uint32_t* q, int64_t words,
                                              const BFloat16* keys, int64_t stride,
                                              Ahead::Cursor asked, float* scores) {
  constexpr int kStepWords = 2 * kWordsTogether;
  constexpr int kAskedPerStep = kKeys * kStepWords * 4 / 64;  // the keys' lines over all steps
  Vec acc[kKeys][kGroups];
#pragma GCC unroll 16
  for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) acc[k][g] = Zero();
  }
  const auto multiply = [&](int k, const BFloat16* two_words, int64_t word) {
    int64_t bits;
    __builtin_memcpy(&bits, two_words, sizeof(bits));
    const auto key = reinterpret_cast<__m512bh>(_mm512_set1_epi64(bits));
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      const __m512i queries = _mm512_load_si512(q + (g * words + word) * kGroup);
      acc[k][g] = _mm512_dpbf16_ps(acc[k][g], reinterpret_cast<__m512bh>(queries), key);
    }
  };
  // Four keys from one pointer, which is hidden: there are not registers for a pointer each, and
  // g++ would keep them in memory and in vectors.
  const int64_t stride3 = 3 * stride;
  const auto each_key = [&](const BFloat16* base, const auto& visit) {
#pragma GCC unroll 4
    for (int k = 0; k < kKeys; k += 4, base += 4 * stride) {
      asm("" : "+r"(base));
      visit(k, base);
      visit(k + 1, base + stride);
      visit(k + 2, base + 2 * stride);
      visit(k + 3, base + stride3);
    }
  };
  int64_t i = 0;
  for (; i + kStepWords <= words; i += kStepWords) {
    asked.Ask<kAskedPerStep>();
    each_key(keys + 2 * i, [&](int k, const BFloat16* key) {
      multiply(k, key, i);
      multiply(k, key + 2 * kWordsTogether, i + kWordsTogether);
    });
  }
  for (; i < words; i += kWordsTogether) {
    each_key(keys + 2 * i, [&](int k, const BFloat16* key) { multiply(k, key, i); });
  }
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; k += 2) {
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      Store(scores + (g * kTileKeys + k) * kGroup, AddWords(acc[k][g], acc[k + 1][g]));
    }
  }
}

// out[r][v * 16 + lane] = start + sum over i of left[r][i] . right[i][v * 16 + lane], pairs of bf16
// in words of 4 bytes, left's rows side by side (left[i * kGroup + r]). right.Begin(run) is called
// before the pairs of each run, right.Next(x) loads one pair; start(r, v) is what stands before the
// first product.
template <int kRows, int kCount, typename Right, typename Start, typename End>
[[gnu::always_inline]] inline void MultiplyPairs(const uint32_t* left, Right right, int64_t pairs,
                                                 const Start& start, const End& end) {
  Vec acc[kRows][kCount];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) acc[r][v] = start(r, v);
  }
  for (int64_t run = 0; run * kRunPairs < pairs; ++run) {
    right.Begin(run);
    const uint32_t* const last = left + Smaller(kRunPairs, pairs - run * kRunPairs) * kGroup;
    for (; left != last; left += kGroup) {
      __m512i x[kCount];
      right.Next(x);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512i y = _mm512_set1_epi32(static_cast<int>(left[r]));
#pragma GCC unroll 4
        for (int v = 0; v < kCount; ++v) {
          acc[r][v] = _mm512_dpbf16_ps(acc[r][v], reinterpret_cast<__m512bh>(x[v]),
                                       reinterpret_cast<__m512bh>(y));
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) end(r, v, acc[r][v]);
  }
}

// The next two blocks of dimensions of values as they stand, all of them there. Each pair asks
// for kLines lines of what is to come, from `line` on. What a pair takes is kept short: the
// loads that the processor starts while it multiplies what came before read ahead too.
template <int kLines>
struct ValuesInPlace {
  const BFloat16* const* runs;
  int64_t stride, d;
  const Ahead& ahead;
  int64_t line;
  const BFloat16* value = nullptr;
  Ahead::Cursor asked = {};

  [[gnu::always_inline]] void Begin(int64_t run) {
    value = runs[run] + d;
    asked = ahead.At(line + run * kRunPairs * kLines, stride);
  }
  [[gnu::always_inline]] void Next(__m512i* x) {
    asked.Ask<kLines>();
    for (int64_t i = 0; i < 2; ++i) {
      TurnPair(_mm512_loadu_si512(value + i * kBlockElements),
               _mm512_loadu_si512(value + stride + i * kBlockElements), x + 2 * i);
    }
    value += 2 * stride;
  }
};

// One block of dimensions of values as they stand, `count` of them.
struct ValuesBlock {
  const BFloat16* const* runs;
  int64_t stride, d, count;
  const BFloat16* value = nullptr;

  void Begin(int64_t run) { value = runs[run] + d; }
  [[gnu::always_inline]] void Next(__m512i* x) {
    TurnPair(LoadBlock(value, count), LoadBlock(value + stride, count), x);
    value += 2 * stride;
  }
};

// Values that were turned, from dimension d on.
template <int kCount>
struct TurnedValues {
  const uint32_t* turned;
  int64_t width;

  void Begin(int64_t) {}
  [[gnu::always_inline]] void Next(__m512i* x) {
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) x[v] = _mm512_load_si512(turned + v * kLanes);
    turned += width;
  }
};

}  // namespace
}  // namespace tessera::kernels::TESSERA_SIMD_PATH
