// Added tokens: strings that are cut out of a text before anything else looks at it, each one id.
//
// Splitting equals Hugging Face's AddedVocabulary: leftmost match, longest first, then the token's
// flags. Tokens that match raw text and tokens that match normalised text are two separate sets.
// Where special tokens count only in the template's text (MarkedView), one that lies in a client's
// text is plain text, and one that reaches across the border is no match at all, so that no client
// can hide a special token of the template.
//
// Immutable after construction, thread-safe. Time is linear in the text times the longest token.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/tokenizer/marked_text.h"

namespace tessera::coordinator {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // dropped by skip_special_tokens, never made from a client's text
  bool normalized = false;   // matches normalised text, not raw text
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // swallows white space before it
  bool rstrip = false;       // and behind it
};

class AddedTokenMatcher {
 public:
  // A stretch of the text: a token, or text between tokens where id is -1. Never empty.
  struct Piece {
    size_t begin;
    size_t end;
    int32_t id;
  };

  AddedTokenMatcher() = default;
  // The strings looked for are `content` as given; the caller has normalised them where they must
  // be. Empty ones are left out.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  const std::vector<AddedToken>& tokens() const { return tokens_; }

  // The pieces of the text in order. Together they cover it, but for white space that a token
  // swallowed twice.
  std::vector<Piece> Split(const MarkedView& input) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> next;  // sorted by byte
    int32_t token = -1;
  };
  struct Match {
    int32_t token = -1;  // -1: none starts here
    bool is_text = false;
  };

  Match LongestAt(const MarkedView& input, size_t begin) const;
  bool TouchesWord(const AddedToken& token, std::string_view text, size_t begin) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<int32_t, 256> roots_{};  // node after the first byte; 0: no token starts with it
};

}  // namespace tessera::coordinator
