// Matrices of a GGUF file that are stored in blocks (gguf_blocks.h).
//
// They are read as codes that ops multiply with where a form of codes holds the type exactly, else
// decoded to f32, for whoever computes with them in 16 or 32 bits. A slice may begin at any column:
// where it begins within a block, the block is decoded and its part taken.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "proto/model/formats/stored_matrix.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/row_source.h"

namespace tessera::worker {

// `matrix` is of the checkpoint (FindMatrix), kGguf. Reading fails where a scale is not finite.
absl::StatusOr<std::shared_ptr<const RowSource>> OpenGguf(const Checkpoint& checkpoint,
                                                          const v1::Quantization& quantization,
                                                          std::string_view name,
                                                          const StoredMatrix& matrix);

}  // namespace tessera::worker
