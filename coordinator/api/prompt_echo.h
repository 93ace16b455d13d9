// Where the tokens of a prompt stand in the prompt's own text.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "coordinator/tokenizer/tokenizer.h"

namespace tessera::coordinator {

// A token in a text. Offsets count characters; a token that begins within a character stands
// behind it.
struct TokenPlace {
  int64_t offset = 0;
  // The text lacks the space that the token begins with: the tokenizer had put it there.
  bool without_space = false;
};

int64_t CountCharacters(std::string_view text);

// One place per id of `ids`, which `text` gave. A token that the text does not show, such as a bos
// that the tokenizer put before it, takes no room. Where a normalizer has changed the text, places
// are as near as the tokens' own text tells. Time is linear in text and ids.
std::vector<TokenPlace> PlacesInPrompt(const Tokenizer& tokenizer, std::string_view text,
                                       const std::vector<int32_t>& ids);

// The same of generated tokens, from `offset` on, which moves behind the last.
std::vector<TokenPlace> PlacesInAnswer(const Tokenizer& tokenizer, bool skip_special_tokens,
                                       const std::vector<int32_t>& ids, int64_t& offset);

}  // namespace tessera::coordinator
