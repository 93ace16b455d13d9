#include "coordinator/api/prompt_echo.h"

#include <algorithm>
#include <string>

namespace tessera::coordinator {
namespace {

// How far behind the last token the next one is looked for where it does not follow at once.
constexpr size_t kMaxGapBytes = 8;

// A character's first byte, of UTF-8.
bool Begins(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

// Bytes of the first `characters` characters.
size_t BytesOf(std::string_view text, int64_t characters) {
  size_t bytes = 0;
  while (bytes < text.size() && characters > 0) {
    --characters;
    do {
      ++bytes;
    } while (bytes < text.size() && !Begins(text[bytes]));
  }
  return bytes;
}

// How many ids at the front are a special token that the text does not spell there so often: the
// tokenizer put them before the text.
size_t PutBefore(const Tokenizer& tokenizer, std::string_view text,
                 const std::vector<int32_t>& ids) {
  if (ids.empty() || !tokenizer.IsSpecial(ids[0])) return 0;
  const std::string spelling = tokenizer.TokenBytes(ids[0]);
  size_t count = 0;
  while (count < ids.size() && ids[count] == ids[0]) ++count;
  while (count > 0 && !spelling.empty() && text.starts_with(spelling)) {
    text.remove_prefix(spelling.size());
    --count;
  }
  return count;
}

}  // namespace

int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), Begins);
}

std::vector<TokenPlace> PlacesInPrompt(const Tokenizer& tokenizer, std::string_view text,
                                       const std::vector<int32_t>& ids) {
  std::vector<TokenPlace> places;
  places.reserve(ids.size());
  const size_t before = PutBefore(tokenizer, text, ids);
  int64_t offset = 0;
  const auto advance = [&](size_t bytes) {
    offset += CountCharacters(text.substr(0, bytes));
    text.remove_prefix(bytes);
  };
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string bytes = tokenizer.TokenBytes(ids[i]);
    const std::string_view token = bytes;
    if (i < before) {
      places.push_back({offset});
    } else if (text.starts_with(token)) {
      places.push_back({offset});
      advance(token.size());
    } else if (token.starts_with(' ') && text.starts_with(token.substr(1))) {
      places.push_back({offset, /*without_space=*/true});
      advance(token.size() - 1);
    } else if (tokenizer.IsSpecial(ids[i])) {
      places.push_back({offset});
    } else {
      // The text has other characters here, or more.
      const size_t other = BytesOf(text, CountCharacters(token));
      const std::string next = i + 1 < ids.size() ? tokenizer.TokenBytes(ids[i + 1]) : "";
      const size_t gap = text.substr(0, kMaxGapBytes + token.size()).find(token);
      const bool more =
          gap != std::string_view::npos && (next.empty() || !text.substr(other).starts_with(next));
      if (more) advance(gap);
      places.push_back({offset});
      advance(more ? token.size() : other);
    }
  }
  return places;
}

std::vector<TokenPlace> PlacesInAnswer(const Tokenizer& tokenizer, bool skip_special_tokens,
                                       const std::vector<int32_t>& ids, int64_t& offset) {
  std::vector<TokenPlace> places;
  places.reserve(ids.size());
  for (int32_t id : ids) {
    places.push_back({offset});
    if (skip_special_tokens && tokenizer.IsSpecial(id)) continue;
    offset += CountCharacters(tokenizer.TokenBytes(id));
  }
  return places;
}

}  // namespace tessera::coordinator
