#include "worker/weights/mapped_rows.h"

#include <utility>

namespace tessera::worker {
namespace {

class MappedRows : public RowSource {
 public:
  MappedRows(std::shared_ptr<const RowSource> source, const RowOrder& order)
      : source_(std::move(source)), order_(order) {}

  std::string Describe() const override { return source_->Describe(); }
  absl::StatusOr<RowForm> FormOf(const IndexRange& columns) const override {
    return source_->FormOf(columns);
  }
  int64_t code_bits() const override { return source_->code_bits(); }
  int64_t part_bytes() const override { return source_->part_bytes(); }

  // Rows that are neighbours in the file are read together.
  absl::Status Read(const IndexRange& rows, const IndexRange& columns, const RowForm& form,
                    RowScratch* scratch, std::byte* out) const override {
    const int64_t row_bytes = RowBytes(form, columns.size());
    absl::Status status;
    for (int64_t row = rows.begin; row < rows.end && status.ok();) {
      const int64_t begin = order_.FileRow(row);
      int64_t count = 1;
      while (row + count < rows.end && order_.FileRow(row + count) == begin + count) ++count;
      status = source_->Read({begin, begin + count}, columns, form, scratch,
                             out + (row - rows.begin) * row_bytes);
      row += count;
    }
    return status;
  }

  std::optional<FileRows> InFile(const IndexRange& rows, const IndexRange& columns) const override {
    if (!order_.IsRange()) return std::nullopt;
    return source_->InFile({order_.FileRow(rows.begin), order_.FileRow(rows.end)}, columns);
  }

 private:
  const std::shared_ptr<const RowSource> source_;
  const RowOrder order_;
};

}  // namespace

std::shared_ptr<const RowSource> InOrder(std::shared_ptr<const RowSource> source,
                                         const RowOrder& order) {
  if (order.IsRange() && order.first == 0) return source;
  return std::make_shared<MappedRows>(std::move(source), order);
}

}  // namespace tessera::worker
