// All tensors of the weight files of a model folder, or of a GGUF file, found by name.
//
// Thread rule: const functions may be called from any thread. Ownership: what it says of
// tensors points into files that live as long as the Checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/index_range.h"
#include "kernels/tensor.h"
#include "proto/model/formats/stored_matrix.h"
#include "worker/weights/safetensors.h"

namespace tessera::worker {

// One tensor in its file.
struct CheckpointTensor {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;

  // "<file>: tensor '<name>'", for errors.
  std::string Describe() const;
};

class Checkpoint : public TensorDirectory {
 public:
  // Opens every weight file of the folder (proto/model/weight_files.h). InvalidArgument for a
  // damaged file, a tensor in two files, and an index that promises what a file does not hold.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::filesystem::path& folder);

  // Its tensors stand under the names of the family (proto/model/gguf_model.h).
  bool is_gguf() const;
  bool Has(std::string_view name) const;
  // NotFound if it is missing; InvalidArgument if its shape is another or its type is not F32, F16
  // or BF16. Names file and tensor.
  absl::StatusOr<CheckpointTensor> Find(std::string_view name,
                                        absl::Span<const int64_t> shape) const;
  // Requires Has(name).
  const CheckpointTensor& Get(const std::string& name) const { return tensors_.at(name); }

  std::optional<StoredTensor> FindTensor(const std::string& name) const override;
  std::string DescribeTensor(const std::string& name) const override {
    return Get(name).Describe();
  }
  std::string Place() const override { return folder_.string(); }

 private:
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

// Rows and columns as floats, of a tensor of F32, F16, BF16, I8, or of powers of two (F8_E8M0, or
// U8 as some write it: 2^(code - 127), 255 is no number). Reads to `raw`.
absl::Status ReadFloats(const CheckpointTensor& tensor, int64_t row_elements,
                        const IndexRange& rows, const IndexRange& columns,
                        std::vector<std::byte>* raw, float* out);

}  // namespace tessera::worker
