#include "worker/weights/plain_rows.h"

#include <string>

namespace tessera::worker {
namespace {

class PlainRows : public RowSource {
 public:
  PlainRows(const CheckpointTensor& tensor, int64_t row_elements)
      : tensor_(tensor), row_elements_(row_elements), form_{.dtype = DTypeOf(tensor)} {}

  std::string Describe() const override { return tensor_.Describe(); }

  absl::StatusOr<RowForm> FormOf(const IndexRange& /*columns*/) const override { return form_; }

  absl::Status Read(const IndexRange& rows, const IndexRange& columns, const RowForm& /*form*/,
                    RowScratch* /*scratch*/, std::byte* out) const override {
    return ReadBlock(tensor_, row_elements_, rows, columns, ElementBytes(), out);
  }

  std::optional<FileRows> InFile(const IndexRange& rows, const IndexRange& columns) const override {
    const int64_t first = rows.begin * row_elements_ + columns.begin;
    return FileRows{.file = tensor_.file,
                    .begin = tensor_.entry->begin + first * ElementBytes(),
                    .row_elements = row_elements_};
  }

 private:
  int64_t ElementBytes() const { return kernels::SizeInBytes(form_.dtype); }

  const CheckpointTensor tensor_;
  const int64_t row_elements_;
  const RowForm form_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const RowSource>> OpenPlain(const Checkpoint& checkpoint,
                                                           std::string_view name,
                                                           absl::Span<const int64_t> shape) {
  const auto tensor = checkpoint.Find(name, shape);
  if (!tensor.ok()) return tensor.status();
  return std::make_shared<PlainRows>(*tensor, shape.back());
}

absl::StatusOr<std::shared_ptr<const RowSource>> OpenColumn(const Checkpoint& checkpoint,
                                                            std::string_view name,
                                                            absl::Span<const int64_t> shape) {
  const auto tensor = checkpoint.Find(name, shape);
  if (!tensor.ok()) return tensor.status();
  return std::make_shared<PlainRows>(*tensor, 1);
}

}  // namespace tessera::worker
