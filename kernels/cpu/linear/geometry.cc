#include "kernels/cpu/linear/geometry.h"

#include <algorithm>

namespace tessera::kernels::cpu::linear {
namespace {

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// bf16 weights are padded to whole tiles of 16 pairs, which AMX multiplies at once.
constexpr int64_t kTilePairs = 16;

int64_t StepsOf(const LinearSpec& spec, bool sign_magnitude, int64_t inputs) {
  switch (spec.weight_dtype) {
    case DType::kF32: return inputs;
    case DType::kBF16: return CeilDiv(inputs, 2 * kTilePairs) * kTilePairs;
    default:
      return sign_magnitude && spec.blocks.size > 0 ? CeilDiv(inputs, 4) * 2 : CeilDiv(inputs, 2);
  }
}

constexpr int64_t kPairBytes = kPanelColumns * 4;

int64_t SegmentBytes(const LinearSpec& spec, int64_t steps) {
  const bool pairs = spec.blocks.size > 0, factors = spec.blocks.size > spec.group_size;
  switch (spec.weight_dtype) {
    case DType::kF32:
    case DType::kBF16: return steps * kPanelColumns * 4;
    case DType::kI4: return kPanelColumns * (factors ? 2 : pairs ? 0 : 4) + steps * kPanelColumns;
    default: return kPanelColumns * 4 + steps * kPanelColumns * 2;
  }
}

bool HasGroups(DType weight_dtype) {
  return weight_dtype == DType::kF8 || weight_dtype == DType::kI8 || weight_dtype == DType::kI4;
}

}  // namespace

const Kernel& KernelFor(const KernelSet& kernels, DType weight_dtype, bool keep_f32) {
  if (weight_dtype == DType::kF32) return kernels.f32;
  if (weight_dtype == DType::kBF16) return keep_f32 ? kernels.bf16_keeping_f32 : kernels.bf16;
  if (weight_dtype == DType::kI4) return keep_f32 ? kernels.i4_keeping_f32 : kernels.i4;
  if (weight_dtype == DType::kF8) return keep_f32 ? kernels.f8_keeping_f32 : kernels.f8;
  return keep_f32 ? kernels.i8_keeping_f32 : kernels.i8;
}

Geometry MakeGeometry(const LinearSpec& spec, const Kernel& kernel) {
  const DType dtype = spec.weight_dtype;
  Geometry g;
  g.in_features = spec.in_features;
  g.out_features = spec.out_features;
  g.panels = CeilDiv(spec.out_features, kPanelColumns);
  g.segment_inputs = HasGroups(dtype) ? spec.group_size : kBlockWords * (kernel.pair_words ? 2 : 1);
  g.segments = CeilDiv(spec.in_features, g.segment_inputs);
  const int64_t last_inputs = spec.in_features - (g.segments - 1) * g.segment_inputs;
  g.segment_steps = StepsOf(spec, kernel.sign_magnitude, g.segment_inputs);
  g.last_segment_steps = StepsOf(spec, kernel.sign_magnitude, last_inputs);
  g.segment_bytes = SegmentBytes(spec, g.segment_steps);
  g.pair_segments = spec.blocks.size / g.segment_inputs;
  g.skipped_segments = spec.blocks.skipped / g.segment_inputs;
  g.panel_bytes = SegmentOffset(g, g.segments - 1) + SegmentBytes(spec, g.last_segment_steps);
  const int64_t words_per_step = dtype == DType::kF32 || kernel.pair_words ? 1 : 2;
  g.segment_words = g.segment_steps * words_per_step;
  g.segments_per_block = std::max<int64_t>(1, kBlockWords / g.segment_words);
  g.blocks = CeilDiv(g.segments, g.segments_per_block);
  return g;
}

int64_t SegmentSteps(const Geometry& geometry, int64_t segment) {
  return segment + 1 < geometry.segments ? geometry.segment_steps : geometry.last_segment_steps;
}

int64_t SegmentInputs(const Geometry& geometry, int64_t segment) {
  return std::min(geometry.segment_inputs,
                  geometry.in_features - segment * geometry.segment_inputs);
}

int64_t SegmentOffset(const Geometry& geometry, int64_t segment) {
  const int64_t offset = segment * geometry.segment_bytes;
  if (geometry.pair_segments == 0) return offset;
  const int64_t pairs = (geometry.skipped_segments + segment) / geometry.pair_segments + 1;
  return offset + pairs * kPairBytes;
}

int64_t PairsOffset(const Geometry& geometry, int64_t segment) {
  const int64_t within = (geometry.skipped_segments + segment) % geometry.pair_segments;
  return SegmentOffset(geometry, std::max<int64_t>(0, segment - within)) - kPairBytes;
}

int64_t PackedPanelBytes(const LinearSpec& spec, const Kernel& kernel) {
  const Geometry geometry = MakeGeometry(spec, kernel);
  return geometry.panels * geometry.panel_bytes;
}

int64_t ActivationBytes(const Geometry& geometry, int64_t rows) {
  return geometry.blocks * rows * kBlockWords * 4;
}

}  // namespace tessera::kernels::cpu::linear
