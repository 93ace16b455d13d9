// Matrices of codes of four bits that are places in a table, as bitsandbytes writes them (NF4,
// FP4). Decoded when they are read.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "proto/model/formats/stored_matrix.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/row_source.h"

namespace tessera::worker {

// `matrix` is of the checkpoint (FindMatrix), kTable. Reads the tables; InvalidArgument for a state
// that is none, or of other sizes than the tensors have. A slice may begin anywhere.
absl::StatusOr<std::shared_ptr<const RowSource>> OpenTable(const Checkpoint& checkpoint,
                                                           const v1::Quantization& quantization,
                                                           std::string_view name,
                                                           const StoredMatrix& matrix);

}  // namespace tessera::worker
