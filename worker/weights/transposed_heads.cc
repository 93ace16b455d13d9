#include "worker/weights/transposed_heads.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace tessera::worker {
namespace {

class TransposedHeads : public RowSource {
 public:
  TransposedHeads(std::shared_ptr<const RowSource> source, const RowForm& form,
                  const HeadRows& rows, int64_t columns)
      : source_(std::move(source)), form_(form), rows_(rows), columns_(columns) {}

  std::string Describe() const override { return source_->Describe(); }
  absl::StatusOr<RowForm> FormOf(const IndexRange& /*columns*/) const override { return form_; }
  int64_t code_bits() const override { return source_->code_bits(); }
  // A head's rows are read whole for any of its columns.
  int64_t part_bytes() const override { return int64_t{16} << 20; }

  absl::Status Read(const IndexRange& rows, const IndexRange& columns, const RowForm& form,
                    RowScratch* scratch, std::byte* out) const override {
    const int64_t size = kernels::SizeInBytes(form.dtype);
    std::vector<std::byte> block(columns.size() * columns_ * size);
    for (int64_t row = rows.begin; row < rows.end;) {
      const int64_t head = row / columns_, end = std::min(rows.end, (head + 1) * columns_);
      const int64_t first = head * rows_.all;
      const absl::Status status = source_->Read({first + columns.begin, first + columns.end},
                                                {0, columns_}, form, scratch, block.data());
      if (!status.ok()) return status;
      for (; row < end; ++row) {
        const int64_t column = row - head * columns_;
        for (int64_t i = 0; i < columns.size(); ++i, out += size) {
          std::memcpy(out, block.data() + (i * columns_ + column) * size, size);
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<const RowSource> source_;
  const RowForm form_;
  const HeadRows rows_;
  const int64_t columns_;
};

}  // namespace

std::shared_ptr<const RowSource> TransposeHeads(std::shared_ptr<const RowSource> source,
                                                const RowForm& form, const HeadRows& rows,
                                                int64_t columns) {
  return std::make_shared<TransposedHeads>(std::move(source), form, rows, columns);
}

}  // namespace tessera::worker
