// The arithmetic of the packed layout (panel_kernel.h): sizes and places for one LinearSpec and one
// kernel. Pure functions; sizes in bytes unless named otherwise.
#pragma once

#include <cstdint>

#include "kernels/cpu/linear/panel_kernel.h"
#include "kernels/ops.h"

namespace tessera::kernels::cpu::linear {

// `keep_f32`: activations are f32 and may not be rounded. Packing is the same either way.
const Kernel& KernelFor(const KernelSet& kernels, DType weight_dtype, bool keep_f32 = false);

// The spec is valid: features >= 1, weight_dtype f32, bf16, f8, i8 or i4, for the last three
// group_size 1..128.
Geometry MakeGeometry(const LinearSpec& spec, const Kernel& kernel);

// Steps and inputs of one segment, the last one shorter.
int64_t SegmentSteps(const Geometry& geometry, int64_t segment);
int64_t SegmentInputs(const Geometry& geometry, int64_t segment);

// Where a segment begins in its panel; i4 with offsets: at its steps, or, without, at its codes.
int64_t SegmentOffset(const Geometry& geometry, int64_t segment);
// i4 with offsets: where the pairs of a segment's block are.
int64_t PairsOffset(const Geometry& geometry, int64_t segment);

int64_t PackedPanelBytes(const LinearSpec& spec, const Kernel& kernel);
// Activation words of `rows` rows.
int64_t ActivationBytes(const Geometry& geometry, int64_t rows);

}  // namespace tessera::kernels::cpu::linear
