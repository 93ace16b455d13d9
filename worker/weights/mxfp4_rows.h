// Matrices of MXFP4 codes, read as codes of a byte, twice as large with half the scale, or decoded.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "proto/model/formats/stored_matrix.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/row_source.h"

namespace tessera::worker {

// `matrix` is of the checkpoint (FindMatrix), kMxfp4: codes [.., outputs, inputs / 32, 16] of two
// inputs a byte, the even one in the low bits, and scales [.., outputs, inputs / 32], powers of
// two.
absl::StatusOr<std::shared_ptr<const RowSource>> OpenMxfp4(const Checkpoint& checkpoint,
                                                           const v1::Quantization& quantization,
                                                           std::string_view name,
                                                           const StoredMatrix& matrix);

}  // namespace tessera::worker
