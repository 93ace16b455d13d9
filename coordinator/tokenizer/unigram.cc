#include "coordinator/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "coordinator/tokenizer/text/utf8.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr size_t kMaxPieceBytes = 1024;
constexpr double kUnknownPenalty = 10;

uint64_t KeyOf(int32_t node, char byte) {
  return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte);
}

}  // namespace

absl::StatusOr<Unigram> Unigram::Build(UnigramSpec spec) {
  Unigram model;
  model.piece_of_node_.push_back(-1);
  double lowest = 0;
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    const std::string& piece = spec.pieces[id];
    if (!std::isfinite(spec.scores[id]) || piece.size() > kMaxPieceBytes) {
      return absl::InvalidArgumentError(StrCat("piece ", id, " (", Excerpt(piece),
                                               ") is longer than ", kMaxPieceBytes,
                                               " bytes, or its score is not finite"));
    }
    lowest = id == 0 ? spec.scores[id] : std::min(lowest, spec.scores[id]);
    model.max_piece_bytes_ = std::max(model.max_piece_bytes_, static_cast<int64_t>(piece.size()));
    if (!piece.empty() && !spec.special[id]) model.AddPiece(piece, static_cast<int32_t>(id));
  }
  model.scores_ = std::move(spec.scores);
  model.unknown_score_ = lowest - kUnknownPenalty;
  model.unknown_ = spec.unknown;
  model.byte_ids_ = std::move(spec.byte_ids);
  return model;
}

void Unigram::AddPiece(std::string_view piece, int32_t id) {
  int32_t node = 0;
  for (const char byte : piece) {
    const auto free = static_cast<int32_t>(piece_of_node_.size());
    const auto [place, is_new] = next_.try_emplace(KeyOf(node, byte), free);
    if (is_new) piece_of_node_.push_back(-1);
    node = place->second;
  }
  piece_of_node_[static_cast<size_t>(node)] = id;
}

void Unigram::FindBestPath(std::string_view word, UnigramScratch* scratch) const {
  scratch->score.assign(word.size() + 1, 0);
  scratch->begin.assign(word.size() + 1, -1);
  scratch->id.assign(word.size() + 1, -1);
  const auto offer = [&](size_t begin, size_t end, double score, int32_t id) {
    const double whole = score + scratch->score[begin];
    if (scratch->begin[end] >= 0 && whole <= scratch->score[end]) return;
    scratch->score[end] = whole;
    scratch->begin[end] = static_cast<int32_t>(begin);
    scratch->id[end] = id;
  };
  for (size_t begin = 0; begin < word.size();) {
    size_t behind = begin;
    NextCodePoint(word, &behind);
    bool is_piece = false;
    int32_t node = 0;
    for (size_t at = begin; at < word.size(); ++at) {
      const auto found = next_.find(KeyOf(node, word[at]));
      if (found == next_.end()) break;
      node = found->second;
      const int32_t id = piece_of_node_[static_cast<size_t>(node)];
      if (id < 0) continue;
      offer(begin, at + 1, scores_[static_cast<size_t>(id)], id);
      is_piece = is_piece || at + 1 == behind;
    }
    if (!is_piece) offer(begin, behind, unknown_score_, unknown_);
    begin = behind;
  }
}

void Unigram::AppendUnknown(std::string_view text, std::vector<int32_t>* ids) const {
  if (byte_ids_.empty()) return ids->push_back(unknown_);
  for (const char byte : text) ids->push_back(byte_ids_[static_cast<uint8_t>(byte)]);
}

void Unigram::Encode(std::string_view word, UnigramScratch* scratch,
                     std::vector<int32_t>* ids) const {
  FindBestPath(word, scratch);
  scratch->ends.clear();
  for (size_t end = word.size(); end > 0; end = static_cast<size_t>(scratch->begin[end])) {
    scratch->ends.push_back(end);
  }
  size_t unknown_from = 0, begin = 0;
  bool is_unknown = false;
  for (auto end = scratch->ends.rbegin(); end != scratch->ends.rend(); begin = *end, ++end) {
    const int32_t id = scratch->id[*end];
    if (id == unknown_) {
      if (!is_unknown) unknown_from = begin;
      is_unknown = true;
      continue;
    }
    if (is_unknown) AppendUnknown(word.substr(unknown_from, begin - unknown_from), ids);
    is_unknown = false;
    ids->push_back(id);
  }
  if (is_unknown) AppendUnknown(word.substr(unknown_from), ids);
}

}  // namespace tessera::coordinator
