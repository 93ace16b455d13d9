// Matrices of codes of a byte, FP8 (e4m3) or int8, whose scales belong to the whole, an output, a
// group of an output's inputs or a block. Decoded when they are read.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "proto/model/formats/stored_matrix.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/row_source.h"

namespace tessera::worker {

// `matrix` is of the checkpoint (FindMatrix), kEightBits. A scale is found by the place in the
// whole matrix, so a slice may begin anywhere. Reads the scales; InvalidArgument for one that is
// not finite.
absl::StatusOr<std::shared_ptr<const RowSource>> OpenEightBits(const Checkpoint& checkpoint,
                                                               const v1::Quantization& quantization,
                                                               std::string_view name,
                                                               const StoredMatrix& matrix);

}  // namespace tessera::worker
