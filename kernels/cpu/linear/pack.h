// Weights into and out of panels (panel_kernel.h). Load time, not on a stream, but for TurnPanel.
// Calls for different rows may run at the same time. Sizes and types have been checked.
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

// Rows of the matrix before this one are packed.
int64_t PackedRowsOf(const PackedWeights& weights);
// Whether every panel of such a matrix lies in one block, and is turned without a conversion.
bool TurnsPanels(const LinearSpec& spec, const UnpackedRows& rows);
// Packs one panel of such rows, for the kernels of this thread that read it next. `out`:
// Geometry::panel_bytes, on a cache line.
void TurnPanel(const Kernel& kernel, const Geometry& geometry, const UnpackedRows& rows,
               int64_t panel, std::byte* out);

// Rows that are not packed yet are copied as they are.
void UnpackPanels(const Kernel& kernel, const PackedWeights& weights, int64_t first_row,
                  const TensorView& out_f32);

}  // namespace tessera::kernels::cpu::linear
