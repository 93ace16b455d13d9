#include "worker/weights/transposed_rows.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace tessera::worker {
namespace {

class TransposedRows : public RowSource {
 public:
  TransposedRows(const CheckpointTensor& tensor, int64_t inputs, int64_t outputs)
      : tensor_(tensor), inputs_(inputs), outputs_(outputs), form_{.dtype = DTypeOf(tensor)} {}

  std::string Describe() const override { return tensor_.Describe(); }

  absl::StatusOr<RowForm> FormOf(const IndexRange& /*columns*/) const override { return form_; }

  absl::Status Read(const IndexRange& rows, const IndexRange& columns, const RowForm& /*form*/,
                    RowScratch* scratch, std::byte* out) const override {
    const int64_t row_bytes = columns.size() * kernels::SizeInBytes(form_.dtype);
    // Matrix by matrix.
    for (int64_t row = rows.begin; row < rows.end;) {
      const int64_t matrix = row / outputs_, end = std::min(rows.end, (matrix + 1) * outputs_);
      const absl::Status status =
          ReadOf(matrix, {row - matrix * outputs_, end - matrix * outputs_}, columns,
                 &scratch->parts[0], out + (row - rows.begin) * row_bytes);
      if (!status.ok()) return status;
      row = end;
    }
    return absl::OkStatus();
  }

  // Few outputs at a time would read a few elements of every input.
  int64_t part_bytes() const override { return int64_t{16} << 20; }

 private:
  absl::Status ReadOf(int64_t matrix, const IndexRange& outputs, const IndexRange& columns,
                      std::vector<std::byte>* block, std::byte* out) const {
    const int64_t size = kernels::SizeInBytes(form_.dtype);
    const IndexRange inputs = {matrix * inputs_ + columns.begin, matrix * inputs_ + columns.end};
    if (absl::Status s = ReadBlock(tensor_, outputs_, inputs, outputs, size, block); !s.ok()) {
      return s;
    }
    for (int64_t o = 0; o < outputs.size(); ++o) {
      for (int64_t i = 0; i < columns.size(); ++i) {
        std::memcpy(out + (o * columns.size() + i) * size,
                    block->data() + (i * outputs.size() + o) * size, size);
      }
    }
    return absl::OkStatus();
  }

  const CheckpointTensor tensor_;
  const int64_t inputs_, outputs_;
  const RowForm form_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const RowSource>> OpenTransposed(const Checkpoint& checkpoint,
                                                                std::string_view name,
                                                                absl::Span<const int64_t> shape) {
  const auto tensor = checkpoint.Find(name, shape);
  if (!tensor.ok()) return tensor.status();
  return std::make_shared<TransposedRows>(*tensor, shape[1], shape[2]);
}

}  // namespace tessera::worker
