#include "worker/weight_plan.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "kernels/half_floats.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

using kernels::BFloat16;
using kernels::DType;
using kernels::Float16;
using kernels::TensorView;

// Source bytes that are read before their pages are given back.
constexpr int64_t kPieceBytes = int64_t{8} << 20;
constexpr int64_t kPieceRows = 64;  // whole panels of packed weights

float FloatAt(DType dtype, const std::byte* data) {
  uint32_t bits = 0;
  std::memcpy(&bits, data, kernels::SizeInBytes(dtype));
  if (dtype == DType::kF32) return kernels::FloatFromBits(bits);
  const auto half = static_cast<uint16_t>(bits);
  return dtype == DType::kBF16 ? kernels::ToFloat(BFloat16{half}) : kernels::ToFloat(Float16{half});
}

// `count` elements of one type as another, of which only widening to f32, f32 to bf16, and no
// change occur.
void Convert(DType from, const std::byte* in, DType to, std::byte* out, int64_t count) {
  if (from == to) {
    std::memcpy(out, in, count * kernels::SizeInBytes(from));
    return;
  }
  const int64_t size = kernels::SizeInBytes(from);
  for (int64_t i = 0; i < count; ++i) {
    const float value = FloatAt(from, in + i * size);
    if (to == DType::kF32) {
      std::memcpy(out + i * 4, &value, 4);
    } else {
      const BFloat16 rounded = kernels::FromFloat<BFloat16>(value);
      std::memcpy(out + i * 2, &rounded, 2);
    }
  }
}

}  // namespace

MatrixSlice WholeMatrix(std::string_view name, int64_t rows, int64_t columns) {
  return {name, rows, columns, {0, rows}, {0, columns}};
}

MatrixSlice MatrixRows(std::string_view name, int64_t rows, int64_t columns, IndexRange span) {
  return {name, rows, columns, span, {0, columns}};
}

MatrixSlice MatrixColumns(std::string_view name, int64_t rows, int64_t columns, IndexRange span) {
  return {name, rows, columns, {0, rows}, span};
}

// Carries out the pieces, one after the other.
class WeightPlan::Filler {
 public:
  Filler(kernels::Ops* ops, kernels::Stream* stream) : ops_(ops), stream_(stream) {}

  absl::Status Fill(const Piece& piece, const std::function<void(int64_t)>& done) {
    const int64_t element_bytes = kernels::SizeInBytes(DTypeOf(piece.source));
    const int64_t row_bytes = piece.row_elements * element_bytes;
    const int64_t step = std::max<int64_t>(1, kPieceBytes / row_bytes / kPieceRows) * kPieceRows;
    for (int64_t row = piece.rows.begin; row < piece.rows.end; row += step) {
      const int64_t count = std::min(step, piece.rows.end - row);
      const int64_t begin = piece.source.entry->begin + row * row_bytes;
      const std::byte* in = piece.source.file->data() + begin;
      in += piece.columns.begin * element_bytes;
      absl::Status status = piece.packed != nullptr ? Pack(piece, row, count, in, row_bytes)
                                                    : Copy(piece, row, count, in, row_bytes);
      if (!status.ok()) {
        return absl::Status(status.code(), absl::StrCat(piece.source.Describe(), ": ",
                                                        std::string(status.message())));
      }
      piece.source.file->DropPages(begin, begin + count * row_bytes);
      done(count * piece.columns.size() * element_bytes);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Pack(const Piece& piece, int64_t row, int64_t count, const std::byte* in,
                    int64_t row_bytes) {
    const DType dtype = DTypeOf(piece.source);
    const int64_t element_bytes = kernels::SizeInBytes(dtype);
    TensorView view(const_cast<std::byte*>(in), dtype, {count, piece.columns.size()});
    view.row_stride = piece.row_elements;
    if (reinterpret_cast<uintptr_t>(in) % element_bytes != 0) {
      // The format does not promise alignment; everybody who reads elements wants it.
      const int64_t bytes = piece.columns.size() * element_bytes;
      staging_.resize(count * bytes);
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(staging_.data() + i * bytes, in + i * row_bytes, bytes);
      }
      view = TensorView(staging_.data(), dtype, {count, piece.columns.size()});
    }
    return ops_->PackWeightRows(*piece.packed, piece.first + row - piece.rows.begin, view);
  }

  absl::Status Copy(const Piece& piece, int64_t row, int64_t count, const std::byte* in,
                    int64_t row_bytes) {
    const DType to = piece.plain->dtype;
    const int64_t columns = piece.columns.size();
    const int64_t to_bytes = columns * kernels::SizeInBytes(to);
    const std::byte* from = in;
    if (DTypeOf(piece.source) != to || to_bytes != row_bytes) {
      staging_.resize(count * to_bytes);
      for (int64_t i = 0; i < count; ++i) {
        Convert(DTypeOf(piece.source), in + i * row_bytes, to, staging_.data() + i * to_bytes,
                columns);
      }
      from = staging_.data();
    }
    std::byte* out = piece.plain->data + piece.first * kernels::SizeInBytes(to) +
                     (row - piece.rows.begin) * to_bytes;
    const absl::Status status = stream_->CopyToDevice(out, from, count * to_bytes);
    return status.ok() ? stream_->Synchronize() : status;
  }

  kernels::Ops* ops_;
  kernels::Stream* stream_;
  std::vector<std::byte> staging_;
};

WeightPlan::WeightPlan(const Checkpoint* checkpoint, kernels::Ops* ops)
    : checkpoint_(checkpoint), ops_(ops) {}

void WeightPlan::AddMatrix(kernels::PackedWeights* target, const kernels::LinearSpec& spec) {
  target->spec = spec;
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

absl::StatusOr<kernels::Buffer> WeightPlan::Execute(
    kernels::Device& device, const std::function<void(int64_t, int64_t)>& progress) {
  absl::StatusOr<kernels::Buffer> memory = arena_.Allocate(device);
  if (!memory.ok()) {
    return absl::Status(memory.status().code(),
                        absl::StrCat("weights: ", std::string(memory.status().message())));
  }
  auto stream = device.CreateStream();
  if (!stream.ok()) return stream.status();

  int64_t done_bytes = 0, total_bytes = 0;
  for (const Piece& piece : pieces_) {
    total_bytes +=
        piece.rows.size() * piece.columns.size() * kernels::SizeInBytes(DTypeOf(piece.source));
  }
  Filler filler(ops_, stream->get());
  for (const Piece& piece : pieces_) {
    const absl::Status status = filler.Fill(piece, [&](int64_t bytes) {
      done_bytes += bytes;
      if (progress) progress(done_bytes, total_bytes);
    });
    if (!status.ok()) return status;
  }
  return memory;
}

}  // namespace tessera::worker
