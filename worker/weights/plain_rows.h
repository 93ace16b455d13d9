// Tensors whose elements are stored one by one: F32, F16 and BF16.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/row_source.h"

namespace tessera::worker {

// The tensor `name` of the shape [.., rows, columns], rows numbered through. Fails as
// Checkpoint::Find does.
absl::StatusOr<std::shared_ptr<const RowSource>> OpenPlain(const Checkpoint& checkpoint,
                                                           std::string_view name,
                                                           absl::Span<const int64_t> shape);

// The tensor `name` of this shape, its elements as rows of one column.
absl::StatusOr<std::shared_ptr<const RowSource>> OpenColumn(const Checkpoint& checkpoint,
                                                            std::string_view name,
                                                            absl::Span<const int64_t> shape);

}  // namespace tessera::worker
