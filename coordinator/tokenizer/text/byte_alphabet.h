// GPT-2's spelling of bytes: each of the 256 bytes is one printable character, so that a vocabulary
// of byte strings can be written as text. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::coordinator {

// The bytes that a spelling stands for; nullopt where a character is none of the 256.
std::optional<std::string> BytesOfSpelling(std::string_view spelling);

// The other way round.
std::string SpellingOf(std::string_view bytes);

// The byte of "<0x41>", SentencePiece's spelling of a byte token; nullopt for any other text.
std::optional<uint8_t> ByteOfFallbackToken(std::string_view token);

// "<0x41>".
std::string FallbackToken(uint8_t byte);

}  // namespace tessera::coordinator
