#include "worker/model/weight_plan.h"

#include <memory>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {

using kernels::DType;
using kernels::TensorView;

MatrixSlice WholeMatrix(std::string_view name, int64_t rows, int64_t columns) {
  return {name, rows, columns, {0, rows}, {0, columns}};
}

MatrixSlice MatrixRows(std::string_view name, int64_t rows, int64_t columns, IndexRange span) {
  return {name, rows, columns, span, {0, columns}};
}

MatrixSlice MatrixColumns(std::string_view name, int64_t rows, int64_t columns, IndexRange span) {
  return {name, rows, columns, {0, rows}, span};
}

WeightPlan::WeightPlan(const Checkpoint* checkpoint, kernels::Ops* ops)
    : checkpoint_(checkpoint), ops_(ops) {}

void WeightPlan::AddMatrix(kernels::PackedWeights* target, const kernels::LinearSpec& spec) {
  target->spec = spec;
  matrices_.push_back(target);
  arena_.Reserve(&target->data, ops_->PackedWeightBytes(spec));
}

absl::Status WeightPlan::AddRows(const kernels::PackedWeights* target, int64_t first_row,
                                 const MatrixSlice& slice) {
  const auto source = checkpoint_->Find(slice.name, {slice.rows, slice.columns});
  if (!source.ok()) return source.status();
  pieces_.push_back({.source = *source,
                     .rows = slice.row_span,
                     .columns = slice.column_span,
                     .row_elements = slice.columns,
                     .packed = target,
                     .first = first_row});
  return absl::OkStatus();
}

absl::Status WeightPlan::AddInt4Rows(const kernels::PackedWeights* target, int64_t first_row,
                                     const v1::Quantization& quantization,
                                     const MatrixSlice& slice) {
  auto matrix = FindInt4(*checkpoint_, quantization, slice.name, slice.rows, slice.columns);
  if (!matrix.ok()) return matrix.status();
  pieces_.push_back({.source = matrix->codes,
                     .int4 = *matrix,
                     .rows = slice.row_span,
                     .columns = slice.column_span,
                     .packed = target,
                     .first = first_row});
  return absl::OkStatus();
}

void WeightPlan::AddVector(TensorView* target, int64_t size) {
  *target = TensorView(nullptr, DType::kF32, {size});
  arena_.Reserve(target);
}

absl::Status WeightPlan::AddVectorPart(const TensorView* target, int64_t first,
                                       std::string_view name, int64_t size, IndexRange span) {
  const auto source = checkpoint_->Find(name, {size});
  if (!source.ok()) return source.status();
  pieces_.push_back({.source = *source,
                     .rows = {0, 1},
                     .columns = span,
                     .row_elements = size,
                     .plain = target,
                     .first = first});
  return absl::OkStatus();
}

absl::Status WeightPlan::AddTable(TensorView* target, const MatrixSlice& slice, bool compact) {
  const auto source = checkpoint_->Find(slice.name, {slice.rows, slice.columns});
  if (!source.ok()) return source.status();
  const DType stored = DTypeOf(*source);
  const DType dtype = compact && stored == DType::kF32 ? DType::kBF16 : stored;
  *target = TensorView(nullptr, dtype, {slice.row_span.size(), slice.columns});
  arena_.Reserve(target);
  pieces_.push_back({.source = *source,
                     .rows = slice.row_span,
                     .columns = slice.column_span,
                     .row_elements = slice.columns,
                     .plain = target});
  return absl::OkStatus();
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
    loaded.later = LaterPacking::Take(matrices_, ops_, device.host_threads(), &pieces_);
  int64_t done_bytes = 0, total_bytes = 0;
  for (const WeightPiece& piece : pieces_) total_bytes += piece.bytes();
  WeightFiller filler(pieces_, ops_, stream->get());
  const absl::Status status =
      filler.Fill(device.host_threads(), [&](const WeightPiece& piece, const IndexRange& rows) {
        done_bytes += rows.size() * piece.RowBytes();
        if (progress) progress(done_bytes, total_bytes);
      });
  if (!status.ok()) return status;
  return loaded;
}

}  // namespace tessera::worker
