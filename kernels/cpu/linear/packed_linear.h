// Linear layers of the CPU device: weights packed once, products for any number of rows, on one of
// the paths of isa.h. Implements the linear ops of kernels/ops.h; what is done how stands in
// panel_kernel.h.
//
// Thread rule: pure functions of their arguments; RunLinear and RunGroupedLinear are called by one
// thread at a time per pool, which takes part in the work. Arguments have been checked against
// ops.h and the isa is one that this processor has. Packed weights belong to the isa they were
// packed for. Precision: f32 and bf16 products are summed in f32. f32 activations keep all their
// bits unless LinearArgs::products says bf16 and the processor multiplies bf16 pairs (AVX512_BF16
// or AMX). Rows keep their bits whatever rows are computed with them, on every path.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace tessera::kernels::cpu {

// `isa` is kAvx2 or above throughout: the reference has a layout of its own
// (kernels/cpu/reference).
int64_t PackedBytes(Isa isa, const LinearSpec& spec);
// Rows [first_row, first_row + source.rows()) of [out_features, in_features], f32|f16|bf16. Calls
// for different rows may run at the same time. InvalidArgument where a weight is not finite and is
// to be quantised.
absl::Status PackRows(Isa isa, const PackedWeights& weights, int64_t first_row,
                      const TensorView& source);
void UnpackRows(Isa isa, const PackedWeights& weights, int64_t first_row,
                const TensorView& out_f32);

// Whether a linear runs on such rows as they are: each thread packs a panel when it gets there,
// into memory that stays in its caches, and forgets it. At some tens of rows and more that costs
// next to nothing, below up to half of the rate.
bool ComputesUnpacked(const LinearSpec& spec, const UnpackedRows& rows);

// Bytes for a linear over `rows` rows, or of a grouped one over so many slots, on a pool of
// `threads`. Bounded: rows beyond some hundreds are computed in pieces.
int64_t WorkspaceBytes(Isa isa, const LinearSpec& spec, int64_t rows, int threads);

void RunLinear(Isa isa, const LinearArgs& args, ThreadPool& pool);
// Slots behind the last expert's are left as they are.
void RunGroupedLinear(Isa isa, const GroupedLinearArgs& args, ThreadPool& pool);

}  // namespace tessera::kernels::cpu
