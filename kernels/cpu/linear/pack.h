// Weights into and out of panels (panel_kernel.h). Load time, not on a stream. Calls for different
// rows may run at the same time. Sizes and types have been checked.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cpu/linear/panel_kernel.h"
#include "kernels/ops.h"

namespace tessera::kernels::cpu::linear {

// Packs rows [first_row, first_row + source.rows()); with the last row of the matrix the padding of
// the last panel is cleared too. InvalidArgument where a weight cannot be quantised.
absl::Status PackPanels(const Kernel& kernel, const PackedWeights& weights, int64_t first_row,
                        const TensorView& source);

void UnpackPanels(const Kernel& kernel, const PackedWeights& weights, int64_t first_row,
                  const TensorView& out_f32);

}  // namespace tessera::kernels::cpu::linear
