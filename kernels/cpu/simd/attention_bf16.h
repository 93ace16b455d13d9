// What attention over a bf16 cache is made of, however pairs are multiplied (attention_dot.cc,
// attention_tiles.h): lines asked for ahead, values put in pairs, softmax weights as bf16.
#pragma once

#include "kernels/cpu/simd/attention_run.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

constexpr int64_t kBlockElements = 32;  // bf16 in a register
constexpr int kLineElements = 32;       // bf16 in a line of the cache
constexpr int64_t kRunPairs = kRunKeys / 2;

// Asks for a line of memory. Always inlined: g++ 12 takes a function that only prefetches for one
// without effects, and drops calls of it; lambdas around it need the attribute too.
[[gnu::always_inline]] inline void AskFor(const BFloat16* place) {
  _mm_prefetch(reinterpret_cast<const char*>(place), _MM_HINT_T1);
}
// The same, into the first cache.
[[gnu::always_inline]] inline void AskNear(const BFloat16* place) {
  _mm_prefetch(reinterpret_cast<const char*>(place), _MM_HINT_T0);
}

// Keys and values of the two tiles to come, run by run and in the order of memory, as the processor
// reads ahead itself. Each line is asked for several times on the way, as it drops requests that it
// has no room for: once leaves memory at 0.6 of its rate, four times at 0.95.
struct Ahead {
  static constexpr int kRuns = 4;  // asked for side by side
  TilePlaces<BFloat16> next, after;

  struct Cursor {
    const BFloat16* runs[kRuns];
    int64_t element;

    template <int kLines>
    [[gnu::always_inline]] void Ask() {
#pragma GCC unroll 4
      for (int i = 0; i < kRuns; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < kLines; ++j) AskFor(runs[i] + element + j * kLineElements);
      }
      element += kLines * kLineElements;
    }
  };

  // At a line of each tile, counted around; `stride`: elements of a row.
  [[gnu::always_inline]] Cursor At(int64_t line, int64_t stride) const {
    const auto run_elements = static_cast<uint32_t>(kRunKeys * stride);
    const auto element = static_cast<uint32_t>(line * kLineElements);
    const uint32_t run = element / run_elements % kTileRuns;
    return {{next.keys[run], next.values[run], after.keys[run], after.values[run]},
            element % run_elements};
  }
};

// A block of a row's elements, zeros behind `count` of them.
inline __m512i LoadBlock(const BFloat16* elements, int64_t count) {
  if (count >= kBlockElements) return _mm512_loadu_si512(elements);
  return _mm512_maskz_loadu_epi16((__mmask32{1} << count) - 1, elements);
}

// Two values, one beside the other in each word.
[[gnu::always_inline]] inline void TurnPair(__m512i even, __m512i odd, __m512i* out) {
  out[0] = _mm512_unpacklo_epi16(even, odd);
  out[1] = _mm512_unpackhi_epi16(even, odd);
}

// Brings a row of sums over values that TurnPair put in pairs into the order of the dimensions.
inline void OrderDimensions(float* row, int64_t width) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  for (int64_t d = 0; d < width; d += kBlockElements) {
    const Vec low = Load(row + d), high = Load(row + d + kLanes);
    Store(row + d, _mm512_permutex2var_ps(low, first, high));
    Store(row + d + kLanes, _mm512_permutex2var_ps(low, second, high));
  }
}

// Softmax weights are computed as bf16 at once. Exponents are counted in steps of 1/128 from
// 2^-127 on: of such a number the low seven bits would be the mantissa, and the others are bf16's
// exponent, if 2^x were a straight line between whole x. What it loses to that line is looked up
// for every second step. Off by less than 0.75 %, where rounding to bf16 alone is by 0.4 %.
constexpr float kSteps = 128;
constexpr float kStepsToOne = 127 * kSteps;

struct LostToLine {
  alignas(64) uint8_t of[64];  // in steps, by half the low seven bits
};
constexpr LostToLine kLostToLine = [] {
  constexpr double kStep = 1.0054299011128028;  // 2^(1/128)
  LostToLine lost = {};
  double power = 1;
  for (int i = 0; i < 64; ++i, power *= kStep * kStep) {
    const double here = 2 * i + 128 - 128 * power;
    const double next = 2 * i + 129 - 128 * power * kStep;
    lost.of[i] = static_cast<uint8_t>((here + next) / 2 + 0.5);
  }
  return lost;
}();

class PowersOfTwo {
 public:
  // bf16 of the steps of `first` and `second`, in the order of packus: of each 128 bits four of
  // the first, then four of the second. 0 where steps are below 0.
  [[gnu::always_inline]] __m512i Of(__m512i first, __m512i second) const {
    const __m512i steps = _mm512_packus_epi32(first, second);
    constexpr __mmask64 kLowBytes = 0x5555555555555555;
    const __m512i half = _mm512_srli_epi16(steps, 1);
    return _mm512_sub_epi16(steps, _mm512_maskz_permutexvar_epi8(kLowBytes, half, lost_));
  }

 private:
  const __m512i lost_ = _mm512_load_si512(kLostToLine.of);
};

// The whole op with the arithmetic of Math.
template <typename Math>
int64_t WorkspaceBytesWith(const AttentionShape& shape, int threads) {
  if (shape.kv_heads <= 0 || shape.heads < shape.kv_heads) return 0;
  return Layout::Of<Math>(shape, threads).total_bytes;
}
template <typename Math>
void AttendPaired(const AttentionArgs& args, ThreadPool& pool) {
  WithActivationType(args.q.dtype,
                     [&](auto activation) { AttendWith<decltype(activation), Math>(args, pool); });
}

}  // namespace
}  // namespace tessera::kernels::TESSERA_SIMD_PATH
