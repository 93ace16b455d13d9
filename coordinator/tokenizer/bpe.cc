#include "coordinator/tokenizer/bpe.h"

#include <algorithm>

#include "coordinator/tokenizer/text/utf8.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr size_t kScanLimit = 48;          // symbols; longer pieces use the heap
constexpr size_t kReachBits = 1 << 21;     // 256 KB; a false positive only costs time
constexpr size_t kWholeWordMaxBytes = 64;  // longer words are not looked up whole

uint64_t PairHash(char32_t left, char32_t right) {
  return ((uint64_t{left} << 21 | right) * 0x9E3779B97F4A7C15u) >> (64 - 21);
}

bool IsByteToken(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.back() == '>';
}

}  // namespace

absl::StatusOr<Bpe> Bpe::Build(BpeSpec spec) {
  const auto count = static_cast<int32_t>(spec.tokens.size());
  const auto valid = [count](int32_t id) { return id >= 0 && id < count; };
  Bpe bpe;
  bpe.byte_level_ = spec.byte_level;
  bpe.byte_fallback_ = spec.byte_fallback;
  bpe.unknown_ = spec.unknown;
  bpe.fuse_unknown_ = spec.fuse_unknown;
  bpe.byte_ids_ = spec.byte_ids;
  if (bpe.byte_fallback_ && bpe.byte_ids_.size() != 256) {
    return absl::InvalidArgumentError("byte fallback needs 256 byte tokens");
  }
  if (bpe.unknown_.has_value() && !valid(*bpe.unknown_)) {
    return absl::InvalidArgumentError("the unknown token's id is outside of the vocabulary");
  }
  spec.special.resize(spec.tokens.size(), false);
  bpe.merges_ = MergeTable(spec.merges.size());
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const BpeSpec::Merge& merge = spec.merges[rank];
    if (!valid(merge.left) || !valid(merge.right) || !valid(merge.result)) {
      return absl::InvalidArgumentError(
          StrCat("merge ", rank, " names an id outside of the vocabulary"));
    }
    if (spec.special[merge.result]) continue;
    bpe.merges_.Set(merge.left, merge.right, {static_cast<int32_t>(rank), merge.result});
  }
  bpe.BuildSymbols(spec);
  bpe.BuildReach(spec);
  bpe.BuildMaxTokenBytes(spec);
  bpe.BuildWholeWords(spec);
  return bpe;
}

void Bpe::BuildSymbols(const BpeSpec& spec) {
  byte_symbols_.assign(256, -1);
  std::vector<std::pair<std::string_view, int32_t>> characters;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string_view token = spec.tokens[id];
    if (token.empty()) continue;
    size_t end = 0;
    if (!byte_level_) NextCodePoint(token, &end);
    if (token.size() == 1) {
      byte_symbols_[static_cast<uint8_t>(token[0])] = static_cast<int32_t>(id);
    } else if (end == token.size()) {
      characters.emplace_back(token, static_cast<int32_t>(id));
    }
  }
  symbols_ = StringIndex(characters.size());
  for (const auto& [character, id] : characters) symbols_.Add(character, id);
}

// Collects the character pairs that stand side by side in any result of a merge. Left empty where
// cutting a word could change its ids: bytes, unknown characters that fuse, merges of byte tokens.
void Bpe::BuildReach(const BpeSpec& spec) {
  const bool all_bytes =
      byte_fallback_ && std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end();
  if (byte_level_ || (unknown_.has_value() && fuse_unknown_ && !all_bytes)) return;
  std::vector<uint64_t> reach(kReachBits / 64, 0);
  for (const BpeSpec::Merge& merge : spec.merges) {
    if (IsByteToken(spec.tokens[merge.left]) || IsByteToken(spec.tokens[merge.right])) return;
    if (merge.left == unknown_ || merge.right == unknown_) return;
    const std::string_view token = spec.tokens[merge.result];
    if (token.empty()) return;
    size_t i = 0;
    for (char32_t left = NextCodePoint(token, &i); i < token.size();) {
      const char32_t right = NextCodePoint(token, &i);
      const uint64_t bit = PairHash(left, right);
      reach[bit / 64] |= uint64_t{1} << (bit % 64);
      left = right;
    }
  }
  reach_ = std::move(reach);
}

void Bpe::BuildMaxTokenBytes(const BpeSpec& spec) {
  constexpr int64_t kMaxCharacterBytes = 4;
  // Bytes that UTF-8 can hold must have ids; an unknown character otherwise has one of its own.
  const auto missing = [](const std::vector<int32_t>& ids) {
    for (size_t byte = 0; byte < ids.size(); ++byte) {
      const bool in_utf8 = byte < 0xC0 || (byte > 0xC1 && byte < 0xF5);
      if (in_utf8 && ids[byte] < 0) return true;
    }
    return ids.empty();
  };
  const bool one_each = unknown_.has_value() && !fuse_unknown_;
  const bool known =
      byte_level_ ? !missing(byte_symbols_) : one_each || (byte_fallback_ && !missing(byte_ids_));
  if (!known) return;
  max_token_bytes_ = kMaxCharacterBytes;
  for (const std::string& token : spec.tokens)
    max_token_bytes_ = std::max(max_token_bytes_, static_cast<int64_t>(token.size()));
}

bool Bpe::MayReachAcross(char32_t left, char32_t right) const {
  const uint64_t bit = PairHash(left, right);
  return (reach_[bit / 64] >> (bit % 64) & 1) != 0;
}

// A token is a whole word where merging its own characters gives it back, or where the model says
// not to merge.
void Bpe::BuildWholeWords(const BpeSpec& spec) {
  BpeScratch scratch;
  std::vector<int32_t> ids;
  std::vector<int32_t> whole;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const std::string_view token = spec.tokens[i];
    const auto id = static_cast<int32_t>(i);
    if (token.empty() || token.size() > kWholeWordMaxBytes || spec.special[i]) continue;
    ids.clear();
    if (!spec.ignore_merges) EncodeMerged(token, &scratch, &ids);
    if (spec.ignore_merges || (ids.size() == 1 && ids[0] == id)) whole.push_back(id);
  }
  whole_words_ = StringIndex(whole.size());
  for (const int32_t id : whole) whole_words_.Add(spec.tokens[id], id);
}

void Bpe::Encode(std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const {
  const auto piece = [&](size_t begin, size_t end) {
    const std::string_view text = word.substr(begin, end - begin);
    const int32_t id = text.size() <= kWholeWordMaxBytes ? whole_words_.Find(text) : -1;
    if (id >= 0) {
      ids->push_back(id);
    } else {
      EncodeMerged(text, scratch, ids);
    }
  };
  if (reach_.empty() || word.empty()) return piece(0, word.size());
  size_t begin = 0;
  size_t i = 0;
  for (char32_t left = NextCodePoint(word, &i); i < word.size();) {
    const size_t border = i;
    const char32_t right = NextCodePoint(word, &i);
    if (!MayReachAcross(left, right)) {
      piece(begin, border);
      begin = border;
    }
    left = right;
  }
  piece(begin, word.size());
}

int32_t Bpe::SymbolOf(std::string_view character) const {
  return character.size() == 1 ? byte_symbols_[static_cast<uint8_t>(character[0])]
                               : symbols_.Find(character);
}

void Bpe::ToSymbols(std::string_view word, std::vector<int32_t>* symbols) const {
  bool unknown_pending = false;  // an unknown symbol is written when the next known one comes
  const auto flush = [&] {
    if (unknown_pending) symbols->push_back(*unknown_);
    unknown_pending = false;
  };
  for (size_t i = 0; i < word.size();) {
    const size_t begin = i;
    if (byte_level_) {
      ++i;
    } else {
      NextCodePoint(word, &i);
    }
    const std::string_view character = word.substr(begin, i - begin);
    const int32_t id = SymbolOf(character);
    if (id >= 0) {
      flush();
      symbols->push_back(id);
      continue;
    }
    const auto byte_id = [this](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
    if (byte_fallback_ &&
        std::all_of(character.begin(), character.end(), [&](char c) { return byte_id(c) >= 0; })) {
      for (const char c : character) symbols->push_back(byte_id(c));
      continue;
    }
    if (!unknown_.has_value()) continue;
    if (!fuse_unknown_) flush();
    unknown_pending = true;
  }
  flush();
}

void Bpe::EncodeMerged(std::string_view word, BpeScratch* scratch,
                       std::vector<int32_t>* ids) const {
  scratch->ids.clear();
  ToSymbols(word, &scratch->ids);
  if (scratch->ids.size() > kScanLimit) {
    MergeByHeap(scratch);
  } else if (scratch->ids.size() > 1) {
    MergeByScan(scratch);
  }
  ids->insert(ids->end(), scratch->ids.begin(), scratch->ids.end());
}

// Looks at every pair for every merge: the fastest way for a few symbols.
void Bpe::MergeByScan(BpeScratch* scratch) const {
  std::vector<int32_t>& ids = scratch->ids;
  size_t count = ids.size();
  int32_t ranks[kScanLimit];
  int32_t results[kScanLimit];
  const auto look_up = [&](size_t i) {
    const MergeTable::Result found = merges_.Find(ids[i], ids[i + 1]);
    ranks[i] = found.rank;
    results[i] = found.id;
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == MergeTable::kNoRank) break;
    ids[best] = results[best];
    for (size_t i = best + 1; i + 1 < count; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    --count;
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  ids.resize(count);
}

// A heap of (rank, position) over a linked list; entries whose pair has changed since are dropped.
void Bpe::MergeByHeap(BpeScratch* scratch) const {
  std::vector<int32_t>& ids = scratch->ids;
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<int32_t>& ranks = scratch->ranks;
  std::vector<int32_t>& results = scratch->results;
  std::vector<int32_t>& next = scratch->next;
  std::vector<int32_t>& previous = scratch->previous;
  std::vector<uint64_t>& heap = scratch->heap;
  ranks.assign(count, MergeTable::kNoRank);
  results.resize(count);
  next.resize(count);
  previous.resize(count);
  heap.clear();
  const auto look_up = [&](int32_t at) {
    const MergeTable::Result found =
        next[at] < count ? merges_.Find(ids[at], ids[next[at]]) : MergeTable::Result{};
    ranks[at] = found.rank;
    results[at] = found.id;
    return found.rank != MergeTable::kNoRank;
  };
  const auto entry = [&](int32_t at) {
    return static_cast<uint64_t>(ranks[at]) << 32 | static_cast<uint32_t>(at);
  };
  const auto push = [&](int32_t at) {
    if (!look_up(at)) return;
    heap.push_back(entry(at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (int32_t i = 0; i < count; ++i) {
    previous[i] = i - 1;
    next[i] = i + 1;
  }
  for (int32_t i = 0; i < count; ++i) {
    if (look_up(i)) heap.push_back(entry(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto at = static_cast<int32_t>(top & 0xFFFFFFFFu);
    if (ranks[at] != static_cast<int32_t>(top >> 32)) continue;
    const int32_t gone = next[at];
    ids[at] = results[at];
    ranks[gone] = MergeTable::kNoRank;
    next[at] = next[gone];
    if (next[at] < count) previous[next[at]] = at;
    push(at);
    if (previous[at] >= 0) push(previous[at]);
  }
  int32_t kept = 0;
  for (int32_t at = 0; at < count; at = next[at]) ids[kept++] = ids[at];
  ids.resize(kept);
}

}  // namespace tessera::coordinator
