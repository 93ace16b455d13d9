#include "worker/weights/background_packing.h"

#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>

#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/weights/start_thread.h"

namespace tessera::worker {

using kernels::PackedWeights;
using kernels::TensorView;
using kernels::UnpackedRows;

namespace {

int64_t SpanBytes(const WeightPiece& piece, const FileRows& place) {
  return place.SpanBytes(piece.rows.size(), piece.columns.size(),
                         kernels::SizeInBytes(piece.form.dtype));
}

}  // namespace

std::unique_ptr<BackgroundPacking> BackgroundPacking::Take(
    absl::Span<PackedWeights* const> matrices, kernels::Ops* ops, int host_threads,
    std::vector<WeightPiece>* pieces) {
  std::unordered_map<const PackedWeights*, std::vector<WeightPiece>> pieces_of;
  for (const WeightPiece& piece : *pieces) {
    if (piece.packed != nullptr) pieces_of[piece.packed].push_back(piece);
  }
  std::unique_ptr<BackgroundPacking> later(new BackgroundPacking(ops));
  for (PackedWeights* target : matrices) {
    if (!later->Add(*target, pieces_of[target])) continue;
    target->unpacked = &later->rows_.at(target);
    later->waiting_bytes_ += ops->PackedWeightBytes(target->spec);
  }
  if (later->pieces_.empty()) return nullptr;
  later->filler_.emplace(later->pieces_, ops, nullptr);
  later->TouchPages(host_threads);
  std::erase_if(*pieces, [](const WeightPiece& piece) {
    return piece.packed != nullptr && piece.packed->unpacked != nullptr;
  });
  return later;
}

BackgroundPacking::~BackgroundPacking() {
  if (filler_) filler_->Stop();
  if (thread_.joinable()) thread_.join();
}

bool BackgroundPacking::Add(const PackedWeights& target, const std::vector<WeightPiece>& pieces) {
  UnpackedRows& rows = rows_[&target];
  for (const WeightPiece& piece : pieces) {
    const std::optional<FileRows> place = piece.source->InFile(piece.rows, piece.columns);
    const FileMapping* mapping = place ? MappingOf(place->file) : nullptr;
    if (mapping == nullptr || place->begin % kernels::SizeInBytes(piece.form.dtype) != 0 ||
        !place->file->IsCached(place->begin, SpanBytes(piece, *place))) {
      rows_.erase(&target);
      return false;
    }
    TensorView view(const_cast<std::byte*>(mapping->data()) + place->begin, piece.form.dtype,
                    {piece.rows.size(), piece.columns.size()});
    view.row_stride = place->row_elements;
    rows.blocks.push_back({.first_row = piece.first, .rows = view});
  }
  if (!ops_->ComputesUnpacked(target.spec, rows)) {
    rows_.erase(&target);
    return false;
  }
  pieces_.insert(pieces_.end(), pieces.begin(), pieces.end());
  return true;
}

const FileMapping* BackgroundPacking::MappingOf(const SafetensorsFile* file) {
  const auto [place, is_new] = mappings_.try_emplace(file);
  if (is_new) place->second = file->Map();
  return place->second.get();
}

void BackgroundPacking::Start() {
  auto thread = StartThread("the thread that packs weights", [this] { PackAll(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
    return;
  }
  Logger("worker").warn("weights are packed before the worker is ready: {}",
                        std::string(StdView(thread.status().message())));
  PackAll();
}

void BackgroundPacking::PackAll() {
  // One thread: the others compute.
  const absl::Status status = filler_->Fill(
      1, [this](const WeightPiece& piece, const IndexRange& rows) { NotePacked(piece, rows); });
  if (absl::IsCancelled(status)) return;
  if (!status.ok()) {
    Logger("worker").error("weights stay unpacked, so steps are slower: {}",
                           std::string(StdView(status.message())));
    return;
  }
  // Steps that ran meanwhile may have touched pages of rows that had just been packed.
  for (const WeightPiece& piece : pieces_) ReleasePages(piece);
  Logger("worker").info("weights are packed");
}

void BackgroundPacking::NotePacked(const WeightPiece& piece, const IndexRange& rows) {
  const kernels::LinearSpec& spec = piece.packed->spec;
  rows_.at(piece.packed)
      .packed_rows.store(piece.first + rows.end - piece.rows.begin, std::memory_order_release);
  waiting_bytes_ -= rows.size() * (ops_->PackedWeightBytes(spec) / spec.out_features);
  WeightPiece packed = piece;
  packed.rows = rows;
  ReleasePages(packed);
}

void BackgroundPacking::TouchPages(int threads) const {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < pieces_.size(); i = next++) {
      const FileRows place = *pieces_[i].source->InFile(pieces_[i].rows, pieces_[i].columns);
      mappings_.at(place.file)->Touch(place.begin, SpanBytes(pieces_[i], place));
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

void BackgroundPacking::ReleasePages(const WeightPiece& piece) const {
  const FileRows place = *piece.source->InFile(piece.rows, piece.columns);
  mappings_.at(place.file)->Release(place.begin, SpanBytes(piece, place));
}

}  // namespace tessera::worker
