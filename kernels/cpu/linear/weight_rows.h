// Rows of a weight matrix in their source type, and their int8 quantisation.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/tensor.h"

namespace tessera::kernels::cpu::linear {

// Elements [first, first + count) of row `row` of `source` (f32, f16 or bf16), as f32.
void ReadRow(const TensorView& source, int64_t row, int64_t first, int64_t count, float* out);

// Symmetric: scale = max|w| / 127, codes to nearest (ties to even); all zero gives scale 0. Returns
// the scale; negative where a weight is not finite.
float Quantise(const float* weights, int64_t count, int8_t* codes);

// The error for a row in which Quantise found a weight that is not finite.
absl::Status NotFinite(int64_t row, int64_t first_input);

// Whether a weight may be kept as f16: it does not round to infinity, or is not finite itself.
bool FitsFloat16(float value);
absl::Status BeyondFloat16(int64_t row, int64_t input, float value);

}  // namespace tessera::kernels::cpu::linear
