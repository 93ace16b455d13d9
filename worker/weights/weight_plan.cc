#include "worker/weights/weight_plan.h"

#include <memory>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {

using kernels::DType;
using kernels::TensorView;

void WeightPlan::AddMatrix(kernels::PackedWeights* target, const kernels::LinearSpec& spec) {
  target->spec = spec;
  matrices_.push_back(target);
  arena_.Reserve(&target->data, ops_->PackedWeightBytes(spec));
}

void WeightPlan::AddRows(const kernels::PackedWeights* target, int64_t first_row,
                         const RowSlice& slice, const RowForm& form) {
  pieces_.push_back({.source = slice.source,
                     .form = form,
                     .rows = slice.rows,
                     .columns = slice.columns,
                     .packed = target,
                     .first = first_row});
}

void WeightPlan::AddVector(TensorView* target, int64_t size) {
  *target = TensorView(nullptr, DType::kF32, {size});
  arena_.Reserve(target);
}

absl::Status WeightPlan::AddVectorPart(const TensorView* target, int64_t first,
                                       const RowSlice& slice, float added) {
  const auto form = slice.source->FormOf(slice.columns);
  if (!form.ok()) return form.status();
  AddPlain(target, first, slice, *form, added);
  return absl::OkStatus();
}

absl::Status WeightPlan::AddTable(TensorView* target, const RowSlice& slice, bool compact) {
  auto form = slice.source->FormOf(slice.columns);
  if (!form.ok()) return form.status();
  if (form->group_size > 0) form = RowForm{};  // codes: rows are looked up as elements
  const DType dtype = compact && form->dtype == DType::kF32 ? DType::kBF16 : form->dtype;
  *target = TensorView(nullptr, dtype, {slice.rows.size(), slice.columns.size()});
  arena_.Reserve(target);
  AddPlain(target, 0, slice, *form, 0);
  return absl::OkStatus();
}

void WeightPlan::AddPlain(const TensorView* target, int64_t first, const RowSlice& slice,
                          const RowForm& form, float added) {
  pieces_.push_back({.source = slice.source,
                     .form = form,
                     .rows = slice.rows,
                     .columns = slice.columns,
                     .plain = target,
                     .first = first,
                     .added = added});
}

absl::StatusOr<WeightPlan::Loaded> WeightPlan::Execute(
    kernels::Device& device, bool pack_later,
    const std::function<void(int64_t, int64_t)>& progress) {
  absl::StatusOr<kernels::Buffer> memory = arena_.Allocate(device);
  if (!memory.ok()) {
    return absl::Status(memory.status().code(),
                        absl::StrCat("weights: ", std::string(memory.status().message())));
  }
  auto stream = device.CreateStream();
  if (!stream.ok()) return stream.status();

  Loaded loaded = {.memory = *std::move(memory), .later = nullptr};
  if (pack_later)
    loaded.later = BackgroundPacking::Take(matrices_, ops_, device.host_threads(), &pieces_);
  int64_t done_bytes = 0, total_bytes = 0;
  for (const WeightPiece& piece : pieces_) total_bytes += piece.bytes();
  WeightFiller filler(pieces_, ops_, stream->get());
  const absl::Status status =
      filler.Fill(device.host_threads(), [&](const WeightPiece& piece, const IndexRange& rows) {
        done_bytes += rows.size() * piece.row_bytes();
        if (progress) progress(done_bytes, total_bytes);
      });
  if (!status.ok()) return status;
  return loaded;
}

}  // namespace tessera::worker
