// How the weights of a linear stand in a GPU's memory: row below row as the checkpoint has them, in
// f32, f16, bf16 or int8; int8 rows are followed by their f32 scales, on the next multiple of 4
// bytes.
//
// Host memory only; pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace tessera::kernels::cuda {

int64_t WeightRowBytes(const LinearSpec& spec);
// From a row's start to its scales; only int8 has them.
int64_t ScalesOffsetBytes(const LinearSpec& spec);

// The rows of `source` (f32|f16|bf16), converted. `first_row` is for errors: InvalidArgument where
// a weight that is not finite cannot be quantised.
absl::StatusOr<std::vector<std::byte>> PackRows(const LinearSpec& spec, int64_t first_row,
                                                const TensorView& source);
// The inverse, as f32.
void UnpackRows(const LinearSpec& spec, const std::byte* packed, const TensorView& out_f32);

}  // namespace tessera::kernels::cuda
