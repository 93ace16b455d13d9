// Matrices that a checkpoint holds as int4 (AWQ, GPTQ without act-order), read in the one layout
// that ops take (kernels/int4_rows.h).
//
// NAME.qweight has eight codes in a word, NAME.qzeros eight zeros, NAME.scales [groups, out] the
// scales. AWQ packs neighbouring outputs: qweight [in, out / 8], the nibbles of a word, from the
// lowest on, those of outputs 0 2 4 6 1 3 5 7; qzeros the same. GPTQ packs neighbouring inputs:
// qweight [in / 8, out], nibbles in order; qzeros [groups, out / 8] outputs in order.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/row_source.h"

namespace tessera::worker {

// Whether the checkpoint holds the matrix `name` ("model.layers.0.mlp.up_proj") as int4.
bool HoldsAwqGptq(const Checkpoint& checkpoint, const v1::Model& model, std::string_view name);

// Looks up the tensors and checks their shapes. InvalidArgument naming the tensor, also for rows or
// columns that are no multiple of 8, scales of 32 bits, and a g_idx that is not i / group_size.
// Rows have the checkpoint's groups, or a divisor of them, at most 128, whose multiples lie at the
// groups' ends; a slice for which that is less than 8 is refused. Borrows the model.
absl::StatusOr<std::shared_ptr<const RowSource>> OpenAwqGptq(const Checkpoint& checkpoint,
                                                             const v1::Model& model,
                                                             std::string_view name, int64_t rows,
                                                             int64_t columns);

}  // namespace tessera::worker
