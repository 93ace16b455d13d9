#include "worker/weights/mapped_columns.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/byte_rows.h"
#include "kernels/int4_rows.h"

namespace tessera::worker {
namespace {

using kernels::DType;

// Bytes of codes, or of elements, at the beginning of a row.
int64_t CodeBytes(const RowForm& form, int64_t columns) {
  if (form.dtype == DType::kI4) return kernels::Int4CodeBytes(columns);
  if (form.is_codes()) return kernels::ByteCodeBytes(columns);
  return columns * kernels::SizeInBytes(form.dtype);
}

class MappedColumns : public RowSource {
 public:
  MappedColumns(std::shared_ptr<const RowSource> source, const RowOrder& order)
      : source_(std::move(source)), order_(order) {}

  std::string Describe() const override { return source_->Describe(); }
  int64_t code_bits() const override { return source_->code_bits(); }
  int64_t part_bytes() const override { return source_->part_bytes(); }

  absl::StatusOr<RowForm> FormOf(const IndexRange& /*columns*/) const override {
    auto form = source_->FormOf({order_.head, 2 * order_.head});
    if (!form.ok() || !form->is_codes()) return form;
    const bool wide_pairs = form->blocks.size > form->group_size;
    if (wide_pairs || order_.head % form->group_size != 0) return RowForm{};
    return form;
  }

  absl::Status Read(const IndexRange& rows, const IndexRange& columns, const RowForm& form,
                    RowScratch* scratch, std::byte* out) const override {
    const int64_t head = order_.head, row_bytes = RowBytes(form, columns.size());
    const int64_t of_head = RowBytes(form, head);
    const int64_t codes = form.dtype == DType::kI4 ? head / 2 : CodeBytes(form, head);
    const int64_t scales_in = CodeBytes(form, head), scales_out = CodeBytes(form, columns.size());
    const int64_t scales = of_head - scales_in;
    std::memset(out, 0, static_cast<size_t>(rows.size() * row_bytes));
    std::vector<std::byte> read(static_cast<size_t>(rows.size() * of_head));
    for (int64_t at = columns.begin; at < columns.end; at += head) {
      const int64_t begin = order_.FileRow(at), index = (at - columns.begin) / head;
      const absl::Status status =
          source_->Read(rows, {begin, begin + head}, form, scratch, read.data());
      if (!status.ok()) return status;
      for (int64_t row = 0; row < rows.size(); ++row) {
        const std::byte* from = read.data() + row * of_head;
        std::byte* to = out + row * row_bytes;
        std::memcpy(to + index * codes, from, static_cast<size_t>(codes));
        std::memcpy(to + scales_out + index * scales, from + scales_in,
                    static_cast<size_t>(scales));
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<const RowSource> source_;
  const RowOrder order_;
};

}  // namespace

std::shared_ptr<const RowSource> InputsInOrder(std::shared_ptr<const RowSource> source,
                                               const RowOrder& order) {
  if (order.IsRange() && order.first == 0) return source;
  return std::make_shared<MappedColumns>(std::move(source), order);
}

}  // namespace tessera::worker
