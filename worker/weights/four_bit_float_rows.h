// Matrices of e2m1 codes beside scales of a byte (NVFP4, MXFP4), read as codes of a byte, twice as
// large with half the scale, or decoded.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "proto/model/formats/stored_matrix.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/row_source.h"

namespace tessera::worker {

// `matrix` is of the checkpoint (FindMatrix), kFourBitFloats: codes [outputs, inputs / 2], the even
// input in the low bits, scales [outputs, inputs / scaled_columns] of e4m3, or U8 as powers of two,
// and matrix_scale, one number, where there is one. InvalidArgument where that is not finite or is
// 0.
absl::StatusOr<std::shared_ptr<const RowSource>> OpenFourBitFloats(
    const Checkpoint& checkpoint, const v1::Quantization& quantization, std::string_view name,
    const StoredMatrix& matrix);

}  // namespace tessera::worker
