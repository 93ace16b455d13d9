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
    const int64_t begin = piece.FileBegin(), stride = piece.FileStride();
    const DType dtype = DTypeOf(piece.source);
    const int64_t span = (piece.rows.size() - 1) * stride + piece.RowBytes();
    if (begin % kernels::SizeInBytes(dtype) != 0 || !file->IsCached(begin, span)) return nullptr;
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
  // Steps that ran meanwhile have touched pages of matrices that were about to be packed.
  for (const std::unique_ptr<Matrix>& matrix : matrices_) ReleasePages(*matrix);
  Logger("worker").info("weights are packed");
}

absl::Status LaterPacking::Pack(Matrix* matrix) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_) return absl::CancelledError("packing was stopped");
    filler_.emplace(matrix->pieces, ops_, nullptr);
  }
  // One thread: the others compute.
  const absl::Status status = filler_->Fill(1, [](int64_t) {});
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    filler_.reset();
  }
  if (!status.ok()) return status;
  matrix->rows.packed.store(true, std::memory_order_release);
  waiting_bytes_ -= ops_->PackedWeightBytes(matrix->target->spec);
  ReleasePages(*matrix);
  return absl::OkStatus();
}

template <typename Use>
void LaterPacking::ForEachPiece(const Matrix& matrix, const Use& use) const {
  for (const WeightPiece& piece : matrix.pieces) {
    use(*mappings_.at(piece.source.file), piece.FileBegin(),
        (piece.rows.size() - 1) * piece.FileStride() + piece.RowBytes());
  }
}

void LaterPacking::TouchPages(int threads) const {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < matrices_.size(); i = next++) {
      ForEachPiece(*matrices_[i], [](const FileMapping& mapping, int64_t begin,
                                     int64_t size_bytes) { mapping.Touch(begin, size_bytes); });
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

void LaterPacking::ReleasePages(const Matrix& matrix) const {
  ForEachPiece(matrix, [](const FileMapping& mapping, int64_t begin, int64_t size_bytes) {
    mapping.Release(begin, size_bytes);
  });
}

}  // namespace tessera::worker
