// Matrices in words of packed codes whose scales stand [groups, out]: AWQ and GPTQ, with act-order
// or without.
//
// AWQ packs neighbouring outputs, the nibbles of a word, from the lowest on, those of outputs
// 0 2 4 6 1 3 5 7; zeros the same. GPTQ packs neighbouring inputs, bits in order; zeros of
// neighbouring outputs in order.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "proto/model/formats/stored_matrix.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/row_source.h"

namespace tessera::worker {

// `matrix` is of the checkpoint (FindMatrix), kAwq or kGptq. Codes are kept with the checkpoint's
// groups, or a divisor of them, at most 128, whose multiples lie at the groups' ends; a slice for
// which that is less than 8 is refused.
absl::StatusOr<std::shared_ptr<const RowSource>> OpenAwqGptq(const Checkpoint& checkpoint,
                                                             const v1::Quantization& quantization,
                                                             std::string_view name,
                                                             const StoredMatrix& matrix);

}  // namespace tessera::worker
