// Matrices as compressed-tensors packs them (pack-quantized): the codes of an output's inputs
// follow each other in words, scales stand [out, groups], zeros of neighbouring outputs in words.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "proto/model/formats/stored_matrix.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/row_source.h"

namespace tessera::worker {

// `matrix` is of the checkpoint (FindMatrix), kPacked. Which slices of codes are refused:
// awq_gptq_rows.h.
absl::StatusOr<std::shared_ptr<const RowSource>> OpenPacked(const Checkpoint& checkpoint,
                                                            const v1::Quantization& quantization,
                                                            std::string_view name,
                                                            const StoredMatrix& matrix);

}  // namespace tessera::worker
