// The formats that matrices of a checkpoint are read from.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/row_source.h"

namespace tessera::worker {

// The matrix `name` ("model.layers.0.mlp.up_proj"), [rows, columns] = (outputs, inputs), in the
// format in which the checkpoint holds it. NotFound, or InvalidArgument, naming file and tensor.
// Borrows the model.
absl::StatusOr<std::shared_ptr<const RowSource>> OpenMatrix(const Checkpoint& checkpoint,
                                                            const v1::Model& model,
                                                            std::string_view name, int64_t rows,
                                                            int64_t columns);

}  // namespace tessera::worker
