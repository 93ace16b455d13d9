#include "worker/later_packing.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>

#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/start_thread.h"

namespace tessera::worker {

using kernels::DType;
using kernels::PackedWeights;
using kernels::TensorView;
using kernels::UnpackedRows;

namespace {

// Packed in one go, before the pages they came from are let go of.
constexpr int64_t kSlabBytes = int64_t{8} << 20;
constexpr int64_t kSlabRows = 64;  // a multiple of every path's panels

}  // namespace

std::unique_ptr<LaterPacking> LaterPacking::Take(absl::Span<PackedWeights* const> matrices,
                                                 kernels::Ops* ops, int host_threads,
                                                 std::vector<WeightPiece>* pieces) {
  std::unordered_map<const PackedWeights*, std::vector<WeightPiece>> pieces_of;
  for (const WeightPiece& piece : *pieces) {
    if (piece.packed != nullptr) pieces_of[piece.packed].push_back(piece);
  }
  std::unique_ptr<LaterPacking> later(new LaterPacking(ops));
  for (PackedWeights* target : matrices) {
    std::unique_ptr<Matrix> matrix = later->Prepare(target, pieces_of[target]);
    if (matrix == nullptr) continue;
    target->unpacked = &matrix->rows;
    later->waiting_bytes_ += ops->PackedWeightBytes(target->spec);
    later->matrices_.push_back(std::move(matrix));
  }
  if (later->matrices_.empty()) return nullptr;
  later->TouchPages(host_threads);
  std::erase_if(*pieces, [](const WeightPiece& piece) {
    return piece.packed != nullptr && piece.packed->unpacked != nullptr;
  });
  return later;
}

LaterPacking::~LaterPacking() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    if (filler_) filler_->Stop();
  }
  if (thread_.joinable()) thread_.join();
}

std::unique_ptr<LaterPacking::Matrix> LaterPacking::Prepare(
    PackedWeights* target, const std::vector<WeightPiece>& pieces) {
  auto matrix = std::make_unique<Matrix>();
  matrix->target = target;
  matrix->pieces = pieces;
  for (const WeightPiece& piece : pieces) {
    const SafetensorsFile* file = piece.source.file;
    const int64_t begin = piece.FileBegin();
    const DType dtype = DTypeOf(piece.source);
    if (begin % kernels::SizeInBytes(dtype) != 0 || !file->IsCached(begin, piece.FileSpan())) {
      return nullptr;
    }
    const FileMapping* mapping = MappingOf(file);
    if (mapping == nullptr) return nullptr;
    TensorView rows(const_cast<std::byte*>(mapping->data()) + begin, dtype,
                    {piece.rows.size(), piece.columns.size()});
    rows.row_stride = piece.row_elements;
    matrix->rows.blocks.push_back({.first_row = piece.first, .rows = rows});
  }
  return ops_->ComputesUnpacked(target->spec, matrix->rows) ? std::move(matrix) : nullptr;
}

const FileMapping* LaterPacking::MappingOf(const SafetensorsFile* file) {
  const auto [place, is_new] = mappings_.try_emplace(file);
  if (is_new) place->second = file->Map();
  return place->second.get();
}

void LaterPacking::Start() {
  auto thread = StartThread("the thread that packs weights", [this] { PackAll(); });
  if (thread.ok()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    thread_ = *std::move(thread);
    return;
  }
  Logger("worker").warn("weights are packed before the worker is ready: {}",
                        std::string(StdView(thread.status().message())));
  PackAll();
}

void LaterPacking::PackAll() {
  for (const std::unique_ptr<Matrix>& matrix : matrices_) {
    const absl::Status status = Pack(matrix.get());
    if (absl::IsCancelled(status)) return;
    if (!status.ok()) {
      Logger("worker").error("weights stay unpacked, which computes slower: {}",
                             std::string(StdView(status.message())));
      return;
    }
  }
  // Steps that ran meanwhile may have touched pages of rows that had just been packed.
  for (const std::unique_ptr<Matrix>& matrix : matrices_) {
    for (const WeightPiece& piece : matrix->pieces) ReleasePages(piece);
  }
  Logger("worker").info("weights are packed");
}

absl::Status LaterPacking::Pack(Matrix* matrix) {
  const kernels::LinearSpec& spec = matrix->target->spec;
  const int64_t packed_row_bytes = ops_->PackedWeightBytes(spec) / spec.out_features;
  for (const WeightPiece& piece : matrix->pieces) {
    const int64_t slab_rows =
        std::max<int64_t>(1, kSlabBytes / piece.RowBytes() / kSlabRows) * kSlabRows;
    for (int64_t row = piece.rows.begin; row < piece.rows.end; row += slab_rows) {
      WeightPiece slab = piece;
      slab.rows = {row, std::min(piece.rows.end, row + slab_rows)};
      slab.first = piece.first + row - piece.rows.begin;
      if (const absl::Status status = Pack(slab); !status.ok()) return status;
      matrix->rows.packed_rows.store(slab.first + slab.rows.size(), std::memory_order_release);
      waiting_bytes_ -= slab.rows.size() * packed_row_bytes;
      ReleasePages(slab);
    }
  }
  return absl::OkStatus();
}

absl::Status LaterPacking::Pack(const WeightPiece& slab) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_) return absl::CancelledError("packing was stopped");
    filler_.emplace(absl::MakeConstSpan(&slab, 1), ops_, nullptr);
  }
  // One thread: the others compute.
  const absl::Status status = filler_->Fill(1, [](int64_t) {});
  const std::lock_guard<std::mutex> lock(mutex_);
  filler_.reset();
  return status;
}

void LaterPacking::TouchPages(int threads) const {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < matrices_.size(); i = next++) {
      for (const WeightPiece& piece : matrices_[i]->pieces) {
        mappings_.at(piece.source.file)->Touch(piece.FileBegin(), piece.FileSpan());
      }
    }
  };
  std::vector<std::thread> others;
  while (static_cast<int>(others.size()) + 1 < threads) {
    auto other = StartThread("a thread that touches weights", work);
    if (!other.ok()) break;
    others.push_back(*std::move(other));
  }
  work();
  for (std::thread& other : others) other.join();
}

void LaterPacking::ReleasePages(const WeightPiece& piece) const {
  mappings_.at(piece.source.file)->Release(piece.FileBegin(), piece.FileSpan());
}

}  // namespace tessera::worker
