// All tensors of a model folder's weight files, found by name.
//
// Thread rule: const functions may be called from any thread. Ownership: what it says of
// tensors points into files that live as long as the Checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/tensor.h"
#include "worker/weights/index_range.h"
#include "worker/weights/safetensors.h"

namespace tessera::worker {

// One tensor in its file.
struct CheckpointTensor {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;

  // "<file>: tensor '<name>'", for errors.
  std::string Describe() const;
};

class Checkpoint {
 public:
  // Opens every weight file of the folder (proto/model/weight_files.h). InvalidArgument for a
  // damaged file, a tensor in two files, and an index that promises what a file does not hold.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::filesystem::path& folder);

  bool Has(std::string_view name) const;
  // NotFound if it is missing; InvalidArgument if its shape is another or its type is not F32, F16
  // or BF16. Names file and tensor.
  absl::StatusOr<CheckpointTensor> Find(std::string_view name,
                                        absl::Span<const int64_t> shape) const;
  // The same of a tensor of I32: packed int4 weights.
  absl::StatusOr<CheckpointTensor> FindInt32(std::string_view name,
                                             absl::Span<const int64_t> shape) const;

 private:
  absl::StatusOr<CheckpointTensor> FindShape(std::string_view name,
                                             absl::Span<const int64_t> shape) const;

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::unordered_map<std::string, CheckpointTensor> tensors_;
};

// Type of a tensor that Checkpoint::Find gave.
kernels::DType DTypeOf(const CheckpointTensor& tensor);

// Reads rows and columns of a tensor of `row_elements` columns to `out`, dense; elements of
// `element_bytes`.
absl::Status ReadBlock(const CheckpointTensor& tensor, int64_t row_elements, const IndexRange& rows,
                       const IndexRange& columns, int64_t element_bytes, std::byte* out);
// The same to memory that is made as large.
absl::Status ReadBlock(const CheckpointTensor& tensor, int64_t row_elements, const IndexRange& rows,
                       const IndexRange& columns, int64_t element_bytes,
                       std::vector<std::byte>* out);

}  // namespace tessera::worker
