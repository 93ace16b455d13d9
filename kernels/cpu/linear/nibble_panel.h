// One panel of i4 weights: a segment at a time becomes a segment of i8 weights in the first cache,
// code less zero exactly, which the steps for i8 then multiply. Those with offsets are computed by
// offset_panel.h. Compiled for AVX2 and more.
//
// Included by files that are compiled with different -m flags, so everything here has internal
// linkage.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/linear/offset_panel.h"
#include "kernels/cpu/linear/panel_block.h"
#include "kernels/cpu/linear/panel_kernel.h"
#include "kernels/cpu/linear/sign_magnitude.h"

namespace tessera::kernels::cpu::linear {
namespace {

constexpr int64_t kNibbleStepBytes = 32;  // of a pair of inputs
constexpr int64_t kCodeStepBytes = 64;    // the same as i8
constexpr uint32_t kZeroBits = 0xf;       // of a word: kInt4ZeroBits of kernels/int4_rows.h
constexpr int64_t kScaleBytes = kPanelColumns * sizeof(float);
constexpr int64_t kSegmentAsI8Bytes = kScaleBytes + kBlockWords / 2 * kCodeStepBytes;

// Scales and zeros of a segment's words. The zeros stand as the bytes of an i8 step.
template <bool kSignMagnitude>
void ReadWords(const std::byte* segment, float* scales, uint8_t* zeros) {
  alignas(64) uint32_t words[kPanelColumns];
  __builtin_memcpy(words, segment, sizeof(words));
  for (int64_t c = 0; c < kPanelColumns; ++c) {
    const auto zero = static_cast<uint8_t>(words[c] & kZeroBits);
    const int64_t even = kSignMagnitude ? SignMagnitudeByte(c, 0) : c;
    const int64_t odd = kSignMagnitude ? SignMagnitudeByte(c, 1) : kPanelColumns + c;
    zeros[even] = zeros[odd] = zero;
    words[c] &= ~kZeroBits;
  }
  __builtin_memcpy(scales, words, sizeof(words));
}

// 32 bytes of code less zero as an i8 step has them.
template <bool kSignMagnitude>
__m256i LessZero(__m256i codes, __m256i zeros) {
  const __m256i value = _mm256_sub_epi8(codes, zeros);
  if constexpr (!kSignMagnitude) return value;
  const __m256i sign = _mm256_and_si256(value, _mm256_set1_epi8(-128));
  return _mm256_or_si256(_mm256_abs_epi8(value), sign);
}

// `out`: kScaleBytes of scales, then `steps` steps of i8 weights, on a cache line.
template <bool kSignMagnitude>
void WidenNibbles(std::byte* out, const std::byte* segment, int64_t steps) {
  alignas(64) uint8_t zeros[kCodeStepBytes];
  ReadWords<kSignMagnitude>(segment, reinterpret_cast<float*>(out), zeros);
  const __m256i first_zeros = _mm256_load_si256(reinterpret_cast<const __m256i*>(zeros));
  const __m256i last_zeros = _mm256_load_si256(reinterpret_cast<const __m256i*>(zeros + 32));
  const __m256i mask = _mm256_set1_epi8(0xf);
  const auto* in = reinterpret_cast<const __m256i*>(segment + kScaleBytes);
  auto* to = reinterpret_cast<__m256i*>(out + kScaleBytes);
  for (int64_t step = 0; step < steps; ++step) {
    const __m256i both = _mm256_loadu_si256(in + step);
    __m256i first = _mm256_and_si256(both, mask);
    __m256i last = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
    if constexpr (kSignMagnitude) {  // a column's two inputs stand side by side
      const __m256i low = _mm256_unpacklo_epi8(first, last);
      const __m256i high = _mm256_unpackhi_epi8(first, last);
      first = _mm256_permute2x128_si256(low, high, 0x20);
      last = _mm256_permute2x128_si256(low, high, 0x31);
    }
    _mm256_store_si256(to + 2 * step, LessZero<kSignMagnitude>(first, first_zeros));
    _mm256_store_si256(to + 2 * step + 1, LessZero<kSignMagnitude>(last, last_zeros));
  }
}

// `Step` and `Wide` as in RunScaledPanel; `OffsetStep` reads codes of weights with offsets.
template <typename Step, typename Wide, bool kSignMagnitude, typename OffsetStep>
void RunNibblePanel(const PanelArgs& args) {
  static_assert(Step::kBytes == kCodeStepBytes);
  if (args.geometry->pair_segments > 0) return RunOffsetPanel<OffsetStep, Wide>(args);
  __builtin_memset(args.sums, 0, args.rows * kPanelColumns * sizeof(float));
  std::byte* const codes = args.scratch + kScratchBytes - kSegmentAsI8Bytes;
  const float* const scales = reinterpret_cast<const float*>(codes);
  for (int64_t segment = 0; segment < args.geometry->segments; ++segment) {
    const SegmentPlace s = PlaceOf(args, segment);
    WidenNibbles<kSignMagnitude>(codes, s.weights, s.steps);
    const Ahead behind = {s.weights + kPrefetchBytes, s.steps * kNibbleStepBytes};
    if (args.rows <= Step::kMaxRows) {
      MultiplyRows<Step, true>(s.activations, codes + kScaleBytes, s.steps, scales, args.sums,
                               args.rows, behind);
      continue;
    }
    Step::Widen(args.scratch, codes + kScaleBytes, s.steps);
    MultiplyRows<Wide, true>(s.activations, args.scratch, s.steps * Step::kWords / Wide::kWords,
                             scales, args.sums, args.rows, behind);
  }
  for (int64_t row = 0; row < args.rows; ++row) {
    WriteRow<typename Step::Vectors>(args, row, args.sums + row * kPanelColumns);
  }
}

}  // namespace
}  // namespace tessera::kernels::cpu::linear
