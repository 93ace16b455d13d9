// Matrices of plain elements that the file has transposed: [.., inputs, outputs].
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/row_source.h"

namespace tessera::worker {

// The tensor `name` of the shape [matrices, inputs, outputs], as rows of inputs: outputs numbered
// through all matrices. Fails as Checkpoint::Find does.
absl::StatusOr<std::shared_ptr<const RowSource>> OpenTransposed(const Checkpoint& checkpoint,
                                                                std::string_view name,
                                                                absl::Span<const int64_t> shape);

}  // namespace tessera::worker
