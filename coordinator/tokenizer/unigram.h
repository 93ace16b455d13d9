// A unigram language model (Kudo, 2018): of all ways to cut a word into pieces the one whose scores
// have the greatest sum, found by Viterbi's algorithm from left to right.
//
// Equal to Hugging Face's Unigram model: a character that is no piece is unknown, at 10 below the
// lowest score; neighbouring unknown characters are one, which byte_fallback spells as bytes.
// Pieces that are special tokens never come of text. O(n * the longest piece).
//
// Immutable after Build, thread-safe; callers bring a UnigramScratch, which one thread uses at a
// time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::coordinator {

// What a model file says about its vocabulary.
struct UnigramSpec {
  std::vector<std::string> pieces;  // by id; "" where the model has no such id
  std::vector<double> scores;       // by id, logarithms
  std::vector<bool> special;        // by id
  int32_t unknown = 0;              // an id
  std::vector<int32_t> byte_ids;    // 256 ids of <0x00> ... <0xFF>; empty: no byte_fallback
};

// The best way to each byte of a word, reused from word to word.
struct UnigramScratch {
  std::vector<double> score;
  std::vector<int32_t> begin;  // of the last piece
  std::vector<int32_t> id;     // of the last piece
  std::vector<size_t> ends;    // of pieces, the last one first
};

class Unigram {
 public:
  // InvalidArgument for a piece of more than 1,024 bytes, and for scores that are not finite.
  static absl::StatusOr<Unigram> Build(UnigramSpec spec);

  // As of Bpe.
  int64_t max_token_bytes() const { return byte_ids_.empty() ? 0 : max_piece_bytes_; }

  // Appends the ids of one word. Requires well-formed UTF-8.
  void Encode(std::string_view word, UnigramScratch* scratch, std::vector<int32_t>* ids) const;

 private:
  Unigram() = default;

  void AddPiece(std::string_view piece, int32_t id);
  void FindBestPath(std::string_view word, UnigramScratch* scratch) const;
  void AppendUnknown(std::string_view text, std::vector<int32_t>* ids) const;

  // A trie: from a node by a byte to the next, (node << 8) + byte -> node; the root is 0.
  absl::flat_hash_map<uint64_t, int32_t> next_;
  std::vector<int32_t> piece_of_node_;  // an id; -1: no piece ends there
  std::vector<double> scores_;          // by id
  double unknown_score_ = 0;
  int32_t unknown_ = 0;
  std::vector<int32_t> byte_ids_;
  int64_t max_piece_bytes_ = 0;
};

}  // namespace tessera::coordinator
