// How the weights of a linear stand in a GPU's memory, once for all kernels: row below row as the
// checkpoint has them, in f32, f16, bf16, float8, int8 or int4. Each row begins at a multiple of 16
// bytes, and so do the f32 scales behind a float8 or int8 row and the words behind the codes of an
// int4 row (kernels/int4_rows.h); what lies between is zero.
//
// Codes stand as a lane of tensor cores takes them, 32 inputs, that is 32 or 16 bytes, after
// another: of inputs 8c + 2t + e (c and t of 0 to 3, e of 0 and 1) those of t = 0 come first, with
// c from 0 to 3, then those of t = 1 and so on. Of the 8 int4 codes of a t, a 32-bit word, those of
// e = 0 are the lower half: so two inputs that follow each other become a pair of 16-bit numbers by
// one shift. Codes of LinearSpec::e2m1 stand so too, as sign, exponent and mantissa, with the f32
// scales that they had as bytes.
//
// Host memory only; pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/ops.h"

namespace tessera::kernels::cuda {

// As kernels have the codes of a spec: those of LinearSpec::e2m1 stand in the places of int4.
constexpr DType KeptType(const LinearSpec& spec) {
  return spec.e2m1 ? DType::kI4 : spec.weight_dtype;
}
int64_t WeightRowBytes(const LinearSpec& spec);
// From a row's start to its scales, words or pairs; only codes have them.
int64_t ScalesOffsetBytes(const LinearSpec& spec);
// To the steps of int4 with offsets; 0: there are none.
int64_t StepsOffsetBytes(const LinearSpec& spec);

// Writes the rows of `source` (f32|f16|bf16, or bytes, see Ops::PackWeightRows), converted, to
// `packed`, WeightRowBytes each. `first_row` is for errors: InvalidArgument where a weight that is
// not finite cannot be quantised, or one is beyond f16.
absl::Status PackRows(const LinearSpec& spec, int64_t first_row, const TensorView& source,
                      std::byte* packed);
// The inverse, as f32.
void UnpackRows(const LinearSpec& spec, const std::byte* packed, const TensorView& out_f32);

}  // namespace tessera::kernels::cuda
