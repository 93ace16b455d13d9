// Byte-pair encoding: a word becomes single symbols, then the neighbouring pair of lowest rank is
// joined, leftmost first, until no pair of the list is left (Sennrich et al., 2016).
//
// Equal to Hugging Face's BPE model. Words that come out as one token are looked up whole. Long
// words are cut where no merge can ever reach across (no token holds these two characters side by
// side), short pieces are merged by scanning, long ones with a heap over a linked list: O(n log n).
//
// Immutable after Build, thread-safe; callers bring a BpeScratch, which one thread uses at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/tokenizer/merge_table.h"
#include "coordinator/tokenizer/string_index.h"

namespace tessera::coordinator {

// What a model file says about its vocabulary.
struct BpeSpec {
  // By id; an empty string is an id that no text can become (a hole, or a token whose spelling is
  // not in the byte alphabet). Bytes of the text itself: byte-level spelling is already undone.
  std::vector<std::string> tokens;
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t result;
  };
  std::vector<Merge> merges;       // best first; of equal pairs the last counts
  std::vector<bool> special;       // by id: never the result of a merge or of a whole-word look-up
  bool byte_level = false;         // symbols are bytes; else characters
  bool ignore_merges = false;      // a word that is in the vocabulary is taken as it is
  bool byte_fallback = false;      // an unknown character becomes its bytes' tokens
  std::vector<int32_t> byte_ids;   // 256 ids of <0x00> ... <0xFF>, -1 where missing; or empty
  std::optional<int32_t> unknown;  // the id of an unknown character; without one it is dropped
  bool fuse_unknown = false;       // neighbouring unknown characters are one
};

// Room for one word's merging, reused from word to word.
struct BpeScratch {
  std::vector<int32_t> ids;
  std::vector<int32_t> ranks;
  std::vector<int32_t> results;
  std::vector<int32_t> next;
  std::vector<int32_t> previous;
  std::vector<uint64_t> heap;
};

class Bpe {
 public:
  // InvalidArgument where ids lie outside of `tokens`.
  static absl::StatusOr<Bpe> Build(BpeSpec spec);

  // The most bytes of a word that one id may stand for; 0: no bound, since unknown characters are
  // dropped, or fused.
  int64_t max_token_bytes() const { return max_token_bytes_; }

  // Appends the ids of one word. Requires well-formed UTF-8.
  void Encode(std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const;

 private:
  Bpe() = default;

  void BuildSymbols(const BpeSpec& spec);
  void BuildReach(const BpeSpec& spec);
  void BuildMaxTokenBytes(const BpeSpec& spec);
  void BuildWholeWords(const BpeSpec& spec);
  bool MayReachAcross(char32_t left, char32_t right) const;

  void EncodeMerged(std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const;
  void ToSymbols(std::string_view word, std::vector<int32_t>* symbols) const;
  int32_t SymbolOf(std::string_view character) const;
  void MergeByScan(BpeScratch* scratch) const;
  void MergeByHeap(BpeScratch* scratch) const;

  MergeTable merges_;
  StringIndex whole_words_;            // words that are one token
  StringIndex symbols_;                // characters beyond ASCII
  std::vector<int32_t> byte_symbols_;  // 256: of a byte (byte level) or of an ASCII character
  std::vector<uint64_t> reach_;  // hashed set of character pairs inside tokens; empty: unknown
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  std::vector<int32_t> byte_ids_;
  std::optional<int32_t> unknown_;
  bool fuse_unknown_ = false;
  int64_t max_token_bytes_ = 0;
};

}  // namespace tessera::coordinator
