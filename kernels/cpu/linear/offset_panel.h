// One panel of i4 weights with offsets (panel_kernel.h): sums of activations times codes are
// scaled, and an offset is multiplied by the sum of a segment's activations. Compiled for AVX2 and
// more.
//
// Included by files that are compiled with different -m flags, so everything here has internal
// linkage.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/linear/panel_block.h"
#include "kernels/cpu/linear/panel_kernel.h"

namespace tessera::kernels::cpu::linear {
namespace {

// Scales and offsets of a panel's segments, one after the other.
template <typename Vectors>
class OffsetSegments {
 public:
  // Before the first segment.
  void Begin(const PanelArgs& args) {
    args_ = &args;
    next_ = args.weights;
    left_of_pair_ = 0;
  }

  // The next segment, of so many bytes of codes: returns these.
  const std::byte* Next(int64_t segment, int64_t code_bytes) {
    const Geometry& g = *args_->geometry;
    if (left_of_pair_ == 0) {
      left_of_pair_ = g.pair_segments - (segment == 0 ? g.skipped_segments : 0);
      ReadPairs();
    }
    --left_of_pair_;
    if (g.pair_segments > 1) {
      MultiplySteps(pair_scales_, 0, scales_);
      MultiplySteps(pair_offsets_, kPanelColumns, offsets_);
      next_ += 2 * kPanelColumns;
    }
    const std::byte* const codes = next_;
    next_ += code_bytes;
    return codes;
  }
  const std::byte* behind() const { return next_; }
  const float* scales() const {
    return args_->geometry->pair_segments > 1 ? scales_ : pair_scales_;
  }
  const float* offsets() const {
    return args_->geometry->pair_segments > 1 ? offsets_ : pair_offsets_;
  }

  // sums += offset * the sum of the segment's activations.
  void AddOffsets(int64_t segment) const {
    const float* const offsets = this->offsets();
    const float* input_sums = args_->input_sums + segment * args_->input_sums_stride;
    for (int64_t row = 0; row < args_->rows; ++row) {
      const auto input_sum = Vectors::Broadcast(input_sums[row]);
      float* sums = args_->sums + row * kPanelColumns;
#pragma GCC unroll 4
      for (int64_t c = 0; c < kPanelColumns; c += Vectors::kLanes) {
        const auto offset = Vectors::Load(offsets + c);
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
    next_ += 2 * kPanelColumns * kHalf;
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

  const PanelArgs* args_ = nullptr;
  const std::byte* next_ = nullptr;
  int64_t left_of_pair_ = 0;  // segments
  alignas(64) float pair_scales_[kPanelColumns];
  alignas(64) float pair_offsets_[kPanelColumns];
  alignas(64) float scales_[kPanelColumns];  // of the segment, where it has steps
  alignas(64) float offsets_[kPanelColumns];
};

// `Step` reads codes; `Wide` what they are widened to for more rows than Step::kMaxRows.
template <typename Step, typename Wide>
void RunOffsetPanel(const PanelArgs& args) {
  using Vectors = typename Step::Vectors;
  OffsetSegments<Vectors> segments;
  segments.Begin(args);
  __builtin_memset(args.sums, 0, args.rows * kPanelColumns * sizeof(float));
  for (int64_t segment = 0; segment < args.geometry->segments; ++segment) {
    const SegmentPlace s = PlaceOf(args, segment);
    const int64_t code_bytes = s.steps * kPanelColumns, steps = code_bytes / Step::kBytes;
    const std::byte* const begin = segments.behind();
    const std::byte* const codes = segments.Next(segment, code_bytes);
    const Ahead behind = {begin + kPrefetchBytes, segments.behind() - begin};
    segments.AddOffsets(segment);
    if (args.rows <= Step::kMaxRows) {
      MultiplyRows<Step, true>(s.activations, codes, steps, segments.scales(), args.sums, args.rows,
                               behind);
      continue;
    }
    Step::Widen(args.scratch, codes, steps);
    MultiplyRows<Wide, true>(s.activations, args.scratch, steps * Step::kWords / Wide::kWords,
                             segments.scales(), args.sums, args.rows, behind);
  }
  for (int64_t row = 0; row < args.rows; ++row) {
    WriteRow<Vectors>(args, row, args.sums + row * kPanelColumns);
  }
}

}  // namespace
}  // namespace tessera::kernels::cpu::linear
