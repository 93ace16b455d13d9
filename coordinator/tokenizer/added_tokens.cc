#include "coordinator/tokenizer/added_tokens.h"

#include <algorithm>

#include "coordinator/tokenizer/text/unicode_class.h"
#include "coordinator/tokenizer/text/utf8.h"

namespace tessera::coordinator {
namespace {

bool EndsWith(std::string_view text, uint8_t unicode_class) {
  size_t offset = text.size();
  return offset > 0 && (UnicodeClassOf(PreviousCodePoint(text, &offset)) & unicode_class) != 0;
}

bool StartsWith(std::string_view text, uint8_t unicode_class) {
  size_t offset = 0;
  return !text.empty() && (UnicodeClassOf(NextCodePoint(text, &offset)) & unicode_class) != 0;
}

// Start of the white space that ends at `end`.
size_t WhiteSpaceBefore(std::string_view text, size_t end, size_t limit) {
  while (end > limit && EndsWith(text.substr(0, end), kWhiteSpace)) PreviousCodePoint(text, &end);
  return std::max(end, limit);
}

// End of the white space that starts at `begin`.
size_t WhiteSpaceAfter(std::string_view text, size_t begin) {
  while (begin < text.size() && StartsWith(text.substr(begin), kWhiteSpace)) {
    NextCodePoint(text, &begin);
  }
  return begin;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  nodes_.emplace_back();
  for (size_t t = 0; t < tokens_.size(); ++t) {
    int32_t node = 0;
    for (const char c : tokens_[t].content) {
      const uint8_t byte = static_cast<uint8_t>(c);
      auto& next = nodes_[node].next;
      const auto at = std::lower_bound(next.begin(), next.end(), std::pair(byte, int32_t{0}));
      if (at != next.end() && at->first == byte) {
        node = at->second;
        continue;
      }
      const auto made = static_cast<int32_t>(nodes_.size());
      next.insert(at, {byte, made});
      nodes_.emplace_back();
      node = made;
    }
    if (nodes_[node].token < 0) nodes_[node].token = static_cast<int32_t>(t);
  }
  for (const auto& [byte, node] : nodes_[0].next) roots_[byte] = node;
}

// The longest token at `begin` that may count here.
AddedTokenMatcher::Match AddedTokenMatcher::LongestAt(const MarkedView& input, size_t begin) const {
  int32_t node = roots_[static_cast<uint8_t>(input.text[begin])];
  Match best;
  bool any_template = false;
  bool any_client = false;
  for (size_t i = begin; node != 0; ++i) {
    if (!input.mask.empty()) (input.mask[i] != 0 ? any_template : any_client) = true;
    if (nodes_[node].token >= 0) {
      const bool special = tokens_[nodes_[node].token].special;
      const bool across = special && any_template && any_client;
      if (!across) {
        const bool is_text =
            special && (input.specials == SpecialTokens::kNowhere ||
                        (input.specials == SpecialTokens::kInTemplate && any_client));
        best = {nodes_[node].token, is_text};
      }
    }
    if (i + 1 >= input.text.size()) break;
    const auto& next = nodes_[node].next;
    const uint8_t byte = static_cast<uint8_t>(input.text[i + 1]);
    const auto at = std::lower_bound(next.begin(), next.end(), std::pair(byte, int32_t{0}));
    node = at != next.end() && at->first == byte ? at->second : 0;
  }
  return best;
}

bool AddedTokenMatcher::TouchesWord(const AddedToken& token, std::string_view text,
                                    size_t begin) const {
  return EndsWith(text.substr(0, begin), kWordPart) ||
         StartsWith(text.substr(begin + token.content.size()), kWordPart);
}

std::vector<AddedTokenMatcher::Piece> AddedTokenMatcher::Split(const MarkedView& input) const {
  std::vector<Piece> pieces;
  const std::string_view text = input.text;
  size_t done = 0;  // text before this is in pieces
  for (size_t i = 0; i < text.size() && !tokens_.empty();) {
    if (roots_[static_cast<uint8_t>(text[i])] == 0) {
      ++i;
      continue;
    }
    const Match match = LongestAt(input, i);
    if (match.token < 0) {
      ++i;
      continue;
    }
    const AddedToken& token = tokens_[match.token];
    size_t begin = i;
    size_t end = i + token.content.size();
    i = end;
    if (match.is_text || (token.single_word && TouchesWord(token, text, begin))) continue;
    if (token.lstrip) begin = WhiteSpaceBefore(text, begin, std::min(done, begin));
    if (token.rstrip) end = WhiteSpaceAfter(text, end);
    if (done < begin) pieces.push_back({done, begin, -1});
    pieces.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) pieces.push_back({done, text.size(), -1});
  return pieces;
}

}  // namespace tessera::coordinator
