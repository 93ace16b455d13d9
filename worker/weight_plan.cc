#include "worker/weight_plan.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <thread>
#include <utility>

#include "kernels/half_floats.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/start_thread.h"

namespace tessera::worker {
namespace {

using kernels::BFloat16;
using kernels::DType;
using kernels::Float16;
using kernels::TensorView;

// Of a checkpoint: what is read stays in a core's cache until it is packed.
constexpr int64_t kPartBytes = int64_t{1} << 20;
constexpr int64_t kPanelRows = 64;  // whole panels of packed weights, on every path
// What all threads read into together: part of what loading takes beyond the weights themselves.
constexpr int64_t kMostStagingBytes = int64_t{64} << 20;

float FloatAt(DType dtype, const std::byte* data) {
  uint32_t bits = 0;
  std::memcpy(&bits, data, kernels::SizeInBytes(dtype));
  if (dtype == DType::kF32) return kernels::FloatFromBits(bits);
  const auto half = static_cast<uint16_t>(bits);
  return dtype == DType::kBF16 ? kernels::ToFloat(BFloat16{half}) : kernels::ToFloat(Float16{half});
}

// `count` elements of one type as another, of which only widening to f32 and f32 to bf16 occur.
void Convert(DType from, const std::byte* in, DType to, std::byte* out, int64_t count) {
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

// Carries out the pieces: cut into parts, which several threads take in turn, so that none waits
// at the end of a tensor.
class WeightPlan::Filler {
 public:
  using Done = std::function<void(int64_t bytes)>;

  Filler(const std::vector<Piece>& pieces, kernels::Ops* ops, kernels::Stream* stream)
      : ops_(ops), stream_(stream) {
    for (const Piece& piece : pieces) Cut(piece);
  }

  // `done` is called by one thread at a time. Of several failures the first part's is told.
  absl::Status Fill(int host_threads, const Done& done) {
    const int64_t useful = std::max<int64_t>(1, kMostStagingBytes / largest_part_bytes_);
    const int64_t threads = std::min<int64_t>(host_threads, useful);
    std::vector<std::thread> others;
    const auto work = [&] { Work(done); };
    for (int64_t i = 1; i < threads; ++i) {
      auto other = StartThread("a thread that reads weights", work);
      if (!other.ok()) {
        Logger("worker").warn("weights are read by {} of {} threads: {}", i, threads,
                              std::string(StdView(other.status().message())));
        break;
      }
      others.push_back(*std::move(other));
    }
    work();
    for (std::thread& other : others) other.join();
    return failure_;
  }

 private:
  struct Part {
    const Piece* piece = nullptr;
    IndexRange rows;  // of the source
  };
  // What a thread reads into: fresh memory costs more than a copy.
  struct Staging {
    std::vector<std::byte> read, converted;
  };

  // Between multiples of the target's panels: two threads do not share a line of one, and the ops
  // pack such a part where they are called.
  void Cut(const Piece& piece) {
    const int64_t row_bytes = RowBytes(piece);
    const int64_t step = std::max<int64_t>(1, kPartBytes / row_bytes / kPanelRows) * kPanelRows;
    const int64_t to_target = piece.packed != nullptr ? piece.first - piece.rows.begin : 0;
    for (int64_t row = piece.rows.begin; row < piece.rows.end;) {
      const int64_t next = ((row + to_target) / step + 1) * step - to_target;
      parts_.push_back({&piece, {row, std::min(next, piece.rows.end)}});
      largest_part_bytes_ = std::max(largest_part_bytes_, parts_.back().rows.size() * row_bytes);
      row = next;
    }
  }

  static int64_t RowBytes(const Piece& piece) {
    return piece.columns.size() * kernels::SizeInBytes(DTypeOf(piece.source));
  }

  void Work(const Done& done) {
    Staging staging;
    for (size_t i = next_++; i < parts_.size(); i = next_++) {
      const Piece& piece = *parts_[i].piece;
      absl::Status status;
      try {
        status = Fill(parts_[i], &staging);
      } catch (const std::bad_alloc&) {
        status = absl::ResourceExhaustedError(
            StrCat("no memory to read ", parts_[i].rows.size() * RowBytes(piece), " bytes into"));
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!status.ok() && i < failed_part_) {
        failed_part_ = i;
        failure_ = absl::Status(status.code(), absl::StrCat(piece.source.Describe(), ": ",
                                                            std::string(status.message())));
      }
      if (!failure_.ok()) return;
      done(parts_[i].rows.size() * RowBytes(piece));
    }
  }

  absl::Status Fill(const Part& part, Staging* staging) {
    if (absl::Status read = Read(part, &staging->read); !read.ok()) return read;
    return part.piece->packed != nullptr ? Pack(part, *staging) : Copy(part, staging);
  }

  static absl::Status Read(const Part& part, std::vector<std::byte>* out) {
    const Piece& piece = *part.piece;
    const int64_t element_bytes = kernels::SizeInBytes(DTypeOf(piece.source));
    const int64_t stride = piece.row_elements * element_bytes, bytes = RowBytes(piece);
    const int64_t begin =
        piece.source.entry->begin + part.rows.begin * stride + piece.columns.begin * element_bytes;
    out->resize(part.rows.size() * bytes);
    const SafetensorsFile& file = *piece.source.file;
    if (bytes == stride) return file.Read(begin, *out);
    absl::Status status;
    for (int64_t i = 0; i < part.rows.size() && status.ok(); ++i) {
      status = file.Read(begin + i * stride, std::span(*out).subspan(i * bytes, bytes));
    }
    return status;
  }

  // A panel's rows at a time: what the ops do in one thread.
  absl::Status Pack(const Part& part, const Staging& staging) {
    const Piece& piece = *part.piece;
    const int64_t row_bytes = RowBytes(piece);
    const int64_t begin = piece.first + part.rows.begin - piece.rows.begin;
    const int64_t end = begin + part.rows.size();
    absl::Status status;
    for (int64_t row = begin; row < end && status.ok();) {
      const int64_t stop = std::min(end, (row / kPanelRows + 1) * kPanelRows);
      auto* in = const_cast<std::byte*>(staging.read.data() + (row - begin) * row_bytes);
      status = ops_->PackWeightRows(
          *piece.packed, row,
          TensorView(in, DTypeOf(piece.source), {stop - row, piece.columns.size()}));
      row = stop;
    }
    return status;
  }

  absl::Status Copy(const Part& part, Staging* staging) {
    const Piece& piece = *part.piece;
    const DType from = DTypeOf(piece.source), to = piece.plain->dtype;
    const int64_t columns = piece.columns.size(), count = part.rows.size() * columns;
    const int64_t to_bytes = kernels::SizeInBytes(to);
    if (from != to) {
      staging->converted.resize(count * to_bytes);
      Convert(from, staging->read.data(), to, staging->converted.data(), count);
    }
    std::byte* out = piece.plain->data + piece.first * to_bytes +
                     (part.rows.begin - piece.rows.begin) * columns * to_bytes;
    const std::lock_guard<std::mutex> lock(stream_mutex_);
    const absl::Status status = stream_->CopyToDevice(
        out, (from != to ? staging->converted : staging->read).data(), count * to_bytes);
    return status.ok() ? stream_->Synchronize() : status;
  }

  kernels::Ops* ops_;
  kernels::Stream* stream_;
  std::mutex stream_mutex_;
  std::vector<Part> parts_;
  int64_t largest_part_bytes_ = 1;
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;  // over what follows, and `done`
  size_t failed_part_ = std::numeric_limits<size_t>::max();
  absl::Status failure_;
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
  Filler filler(pieces_, ops_, stream->get());
  const absl::Status status = filler.Fill(device.host_threads(), [&](int64_t bytes) {
    done_bytes += bytes;
    if (progress) progress(done_bytes, total_bytes);
  });
  if (!status.ok()) return status;
  return memory;
}

}  // namespace tessera::worker
