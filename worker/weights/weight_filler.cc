#include "worker/weights/weight_filler.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "kernels/half_floats.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/weights/element_floats.h"
#include "worker/weights/start_thread.h"

namespace tessera::worker {
namespace {

using kernels::BFloat16;
using kernels::DType;
using kernels::TensorView;

constexpr int64_t kPanelRows = 64;  // whole panels of packed weights, on every path
// What all threads read into together: part of what loading takes beyond the weights themselves.
constexpr int64_t kMaxStagingBytes = int64_t{64} << 20;

// `count` elements, with a number added, of one type as another, of which only widening to f32 and
// f32 to bf16 occur.
void Convert(DType from, const std::byte* in, float added, DType to, std::byte* out,
             int64_t count) {
  const int64_t size = kernels::SizeInBytes(from);
  for (int64_t i = 0; i < count; ++i) {
    const float value = FloatAt(from, in + i * size) + added;
    if (to == DType::kF32) {
      std::memcpy(out + i * 4, &value, 4);
    } else {
      const BFloat16 rounded = kernels::FromFloat<BFloat16>(value);
      std::memcpy(out + i * 2, &rounded, 2);
    }
  }
}

}  // namespace

// What a thread reads into: fresh memory costs more than a copy.
struct WeightFiller::Staging {
  std::vector<std::byte> read, converted;
  RowScratch scratch;
};

WeightFiller::WeightFiller(absl::Span<const WeightPiece> pieces, kernels::Ops* ops,
                           kernels::Stream* stream)
    : ops_(ops), stream_(stream) {
  for (const WeightPiece& piece : pieces) Cut(piece);
}

absl::Status WeightFiller::Fill(int host_threads, const Done& done) {
  const int64_t useful = std::max<int64_t>(1, kMaxStagingBytes / largest_part_bytes_);
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

// Between multiples of the target's panels: two threads do not share a line of one, and the ops
// pack such a part where they are called.
void WeightFiller::Cut(const WeightPiece& piece) {
  const int64_t row_bytes = piece.row_bytes();
  const int64_t part_bytes = piece.source->part_bytes();
  const int64_t step = std::max<int64_t>(1, part_bytes / row_bytes / kPanelRows) * kPanelRows;
  const int64_t to_target = piece.packed != nullptr ? piece.first - piece.rows.begin : 0;
  for (int64_t row = piece.rows.begin; row < piece.rows.end;) {
    const int64_t next = ((row + to_target) / step + 1) * step - to_target;
    parts_.push_back({&piece, {row, std::min(next, piece.rows.end)}});
    largest_part_bytes_ = std::max(largest_part_bytes_, parts_.back().rows.size() * row_bytes);
    row = next;
  }
}

void WeightFiller::Work(const Done& done) {
  Staging staging;
  for (size_t i = next_++; i < parts_.size(); i = next_++) {
    const WeightPiece& piece = *parts_[i].piece;
    absl::Status status;
    try {
      status = Fill(parts_[i], &staging);
    } catch (const std::bad_alloc&) {
      status = absl::ResourceExhaustedError(
          StrCat("no memory to read ", parts_[i].rows.size() * piece.row_bytes(), " bytes into"));
    }
    if (status.ok() && stopped_) status = absl::CancelledError("loading was stopped");
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!status.ok() && i < failed_part_) {
      failed_part_ = i;
      failure_ = absl::Status(status.code(), absl::StrCat(piece.source->Describe(), ": ",
                                                          std::string(status.message())));
    }
    if (!failure_.ok()) return;
    done(piece, parts_[i].rows);
  }
}

absl::Status WeightFiller::Fill(const Part& part, Staging* staging) {
  if (absl::Status read = Read(part, staging); !read.ok()) return read;
  return part.piece->packed != nullptr ? Pack(part, *staging) : Copy(part, staging);
}

absl::Status WeightFiller::Read(const Part& part, Staging* staging) {
  const WeightPiece& piece = *part.piece;
  staging->read.resize(part.rows.size() * piece.row_bytes());
  return piece.source->Read(part.rows, piece.columns, piece.form, &staging->scratch,
                            staging->read.data());
}

// A panel's rows at a time: what the ops do in one thread.
absl::Status WeightFiller::Pack(const Part& part, const Staging& staging) {
  const WeightPiece& piece = *part.piece;
  const int64_t row_bytes = piece.row_bytes();
  const int64_t begin = piece.first + part.rows.begin - piece.rows.begin;
  const int64_t end = begin + part.rows.size();
  absl::Status status;
  for (int64_t row = begin; row < end && status.ok();) {
    const int64_t stop = std::min(end, (row / kPanelRows + 1) * kPanelRows);
    auto* in = const_cast<std::byte*>(staging.read.data() + (row - begin) * row_bytes);
    const TensorView rows =
        piece.form.is_codes()
            ? TensorView(in, DType::kI8, {stop - row, row_bytes})
            : TensorView(in, piece.form.dtype, {stop - row, piece.columns.size()});
    status = ops_->PackWeightRows(*piece.packed, row, rows);
    row = stop;
  }
  return status;
}

absl::Status WeightFiller::Copy(const Part& part, Staging* staging) {
  const WeightPiece& piece = *part.piece;
  const DType from = piece.form.dtype, to = piece.plain->dtype;
  const int64_t columns = piece.columns.size(), count = part.rows.size() * columns;
  const int64_t to_bytes = kernels::SizeInBytes(to);
  const bool converts = from != to || piece.added != 0;
  if (converts) {
    staging->converted.resize(count * to_bytes);
    Convert(from, staging->read.data(), piece.added, to, staging->converted.data(), count);
  }
  std::byte* out = piece.plain->data + piece.first * to_bytes +
                   (part.rows.begin - piece.rows.begin) * columns * to_bytes;
  const std::lock_guard<std::mutex> lock(stream_mutex_);
  const absl::Status status = stream_->CopyToDevice(
      out, (converts ? staging->converted : staging->read).data(), count * to_bytes);
  return status.ok() ? stream_->Synchronize() : status;
}

}  // namespace tessera::worker
