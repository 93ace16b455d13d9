// SentencePiece's compiled rules of normalisation: a trie of texts (darts-clone's double array) and
// what each of them becomes.
//
// Equal to Hugging Face's Precompiled normalizer, which applies the rule of the shortest text that
// a grapheme of at most 5 bytes begins with, and else rules to its characters. Immutable,
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::coordinator {

class CharacterMap {
 public:
  // `bytes`: a u32 that says how many bytes of u32 units follow, then texts that end in zeros.
  // InvalidArgument where they are no such thing.
  static absl::StatusOr<CharacterMap> Parse(std::string_view bytes);

  // Appends what the grapheme becomes. Requires well-formed UTF-8.
  void Append(std::string_view grapheme, std::string* out) const;

 private:
  CharacterMap() = default;

  // What the shortest beginning of `text` that has a rule becomes.
  std::optional<std::string_view> Find(std::string_view text) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

// The end of the grapheme that begins at `begin`. Requires well-formed UTF-8, and begin < its size.
size_t EndOfGrapheme(std::string_view text, size_t begin);

}  // namespace tessera::coordinator
