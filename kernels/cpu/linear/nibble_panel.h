// One panel of i4 weights: a segment at a time becomes a segment of i8 weights in the first cache,
// code less zero exactly, which the steps for i8 then multiply. With offsets it is the code alone,
// and the offset is multiplied by the sum of the segment's activations. Compiled for AVX2 and more.
//
// Included by files that are compiled with different -m flags, so everything here has internal
// linkage.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

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

// Code less zero: 32 bytes as an i8 step has them, of first or last columns.
template <bool kSignMagnitude>
struct LessZero {
  __m256i first_zeros, last_zeros;

  explicit LessZero(const uint8_t* zeros)
      : first_zeros(_mm256_load_si256(reinterpret_cast<const __m256i*>(zeros))),
        last_zeros(_mm256_load_si256(reinterpret_cast<const __m256i*>(zeros + 32))) {}
  static __m256i Coded(__m256i value) {
    if constexpr (!kSignMagnitude) return value;
    const __m256i sign = _mm256_and_si256(value, _mm256_set1_epi8(-128));
    return _mm256_or_si256(_mm256_abs_epi8(value), sign);
  }
  __m256i First(__m256i codes) const { return Coded(_mm256_sub_epi8(codes, first_zeros)); }
  __m256i Last(__m256i codes) const { return Coded(_mm256_sub_epi8(codes, last_zeros)); }
};

// Codes are the same in both codings.
struct AsTheyAre {
  __m256i First(__m256i codes) const { return codes; }
  __m256i Last(__m256i codes) const { return codes; }
};

// `steps` steps of i8 weights, on a cache line, of as many steps of codes.
template <bool kSignMagnitude, typename Value>
void WidenCodes(std::byte* out, const std::byte* codes, int64_t steps, const Value& value) {
  const __m256i mask = _mm256_set1_epi8(0xf);
  const auto* in = reinterpret_cast<const __m256i*>(codes);
  auto* to = reinterpret_cast<__m256i*>(out);
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
    _mm256_store_si256(to + 2 * step, value.First(first));
    _mm256_store_si256(to + 2 * step + 1, value.Last(last));
  }
}

// `out`: kScaleBytes of scales, then `steps` steps of i8 weights, on a cache line.
template <bool kSignMagnitude>
void WidenNibbles(std::byte* out, const std::byte* segment, int64_t steps) {
  alignas(64) uint8_t zeros[kCodeStepBytes];
  ReadWords<kSignMagnitude>(segment, reinterpret_cast<float*>(out), zeros);
  WidenCodes<kSignMagnitude>(out + kScaleBytes, segment + kScaleBytes, steps,
                             LessZero<kSignMagnitude>(zeros));
}

// A panel's segments with zeros, one after the other.
template <bool kSignMagnitude>
class ZeroSegments {
 public:
  explicit ZeroSegments(const PanelArgs& args) : args_(args) {}

  // As WidenNibbles. Returns how the segments behind it stand.
  Ahead Widen(std::byte* out, int64_t segment, int64_t steps) const {
    const std::byte* from = args_.weights + segment * args_.geometry->segment_bytes;
    WidenNibbles<kSignMagnitude>(out, from, steps);
    return {from + kPrefetchBytes, steps * kNibbleStepBytes};
  }
  void AddOffsets(int64_t /*segment*/) const {}

 private:
  const PanelArgs& args_;
};

// Those with offsets.
template <typename Vectors, bool kSignMagnitude>
class OffsetSegments {
 public:
  explicit OffsetSegments(const PanelArgs& args)
      : args_(args), next_(args.weights), left_of_pair_(0) {}

  Ahead Widen(std::byte* out, int64_t segment, int64_t steps) {
    const Geometry& g = *args_.geometry;
    const std::byte* const begin = next_;
    if (left_of_pair_ == 0) {
      left_of_pair_ = g.pair_segments - (segment == 0 ? g.skipped_segments : 0);
      ReadPairs();
    }
    --left_of_pair_;
    auto* scales = reinterpret_cast<float*>(out);
    if (g.pair_segments > 1) {
      MultiplySteps(pair_scales_, 0, scales);
      MultiplySteps(pair_offsets_, kPanelColumns, offsets_);
      next_ += 2 * kPanelColumns;
    } else {
      __builtin_memcpy(scales, pair_scales_, sizeof(pair_scales_));
      __builtin_memcpy(offsets_, pair_offsets_, sizeof(pair_offsets_));
    }
    WidenCodes<kSignMagnitude>(out + kScaleBytes, next_, steps, AsTheyAre());
    next_ += steps * kNibbleStepBytes;
    return {begin + kPrefetchBytes, next_ - begin};
  }

  // sums += offset * the sum of the segment's activations.
  void AddOffsets(int64_t segment) const {
    const float* input_sums = args_.input_sums + segment * args_.input_sums_stride;
    for (int64_t row = 0; row < args_.rows; ++row) {
      const auto input_sum = Vectors::Broadcast(input_sums[row]);
      float* sums = args_.sums + row * kPanelColumns;
#pragma GCC unroll 4
      for (int64_t c = 0; c < kPanelColumns; c += Vectors::kLanes) {
        const auto offset = Vectors::Load(offsets_ + c);
        Vectors::Store(sums + c, Vectors::MultiplyAdd(Vectors::Load(sums + c), offset, input_sum));
      }
    }
  }

 private:
  void ReadPairs() {
    constexpr int64_t kHalf = 2;  // bytes
    for (int64_t c = 0; c < kPanelColumns; c += Vectors::kLanes) {
      Vectors::Store(pair_scales_ + c, Vectors::LoadF16(next_ + c * kHalf));
      Vectors::Store(pair_offsets_ + c, Vectors::LoadF16(next_ + (kPanelColumns + c) * kHalf));
    }
    next_ += kScaleBytes;
  }
  // The steps at `at` of the next ones, times numbers of the pairs.
  void MultiplySteps(const float* of_pairs, int64_t at, float* out) const {
    for (int64_t c = 0; c < kPanelColumns; c += 8) {
      const auto* steps = reinterpret_cast<const __m128i*>(next_ + at + c);
      const __m256i integers = _mm256_cvtepi8_epi32(_mm_loadl_epi64(steps));
      _mm256_store_ps(out + c,
                      _mm256_mul_ps(_mm256_load_ps(of_pairs + c), _mm256_cvtepi32_ps(integers)));
    }
  }

  const PanelArgs& args_;
  const std::byte* next_;
  int64_t left_of_pair_;  // segments
  alignas(64) float pair_scales_[kPanelColumns];
  alignas(64) float pair_offsets_[kPanelColumns];
  alignas(64) float offsets_[kPanelColumns];  // of the segment
};

template <typename Step, typename Wide, typename Segments>
void RunNibbleSegments(const PanelArgs& args) {
  static_assert(Step::kBytes == kCodeStepBytes);
  Segments segments(args);
  __builtin_memset(args.sums, 0, args.rows * kPanelColumns * sizeof(float));
  std::byte* const codes = args.scratch + kScratchBytes - kSegmentAsI8Bytes;
  const float* const scales = reinterpret_cast<const float*>(codes);
  for (int64_t segment = 0; segment < args.geometry->segments; ++segment) {
    const SegmentPlace s = PlaceOf(args, segment);
    const Ahead behind = segments.Widen(codes, segment, s.steps);
    segments.AddOffsets(segment);
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

// `Step` and `Wide` as in RunScaledPanel.
template <typename Step, typename Wide, bool kSignMagnitude>
void RunNibblePanel(const PanelArgs& args) {
  if (args.geometry->pair_segments == 0) {
    RunNibbleSegments<Step, Wide, ZeroSegments<kSignMagnitude>>(args);
  } else {
    using Segments = OffsetSegments<typename Step::Vectors, kSignMagnitude>;
    RunNibbleSegments<Step, Wide, Segments>(args);
  }
}

}  // namespace
}  // namespace tessera::kernels::cpu::linear
