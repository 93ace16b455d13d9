#include "coordinator/tokenizer/text/byte_alphabet.h"

#include <array>
#include <charconv>

#include "coordinator/tokenizer/text/utf8.h"

namespace tessera::coordinator {
namespace {

constexpr int kCharacters = 256 + 68;  // 68 bytes are not printable and take U+0100 onwards

bool SpellsItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// The byte of each character, -1 where it is none.
std::array<int16_t, kCharacters> MakeTable() {
  std::array<int16_t, kCharacters> table;
  table.fill(-1);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    table[SpellsItself(byte) ? byte : next++] = static_cast<int16_t>(byte);
  }
  return table;
}

}  // namespace

std::optional<std::string> BytesOfSpelling(std::string_view spelling) {
  static const std::array<int16_t, kCharacters> kTable = MakeTable();
  std::string bytes;
  for (size_t i = 0; i < spelling.size();) {
    const char32_t c = NextCodePoint(spelling, &i);
    if (c >= kCharacters || kTable[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kTable[c]));
  }
  return bytes;
}

std::string SpellingOf(std::string_view bytes) {
  static const std::array<std::string, 256> kSpellings = [] {
    const std::array<int16_t, kCharacters> table = MakeTable();
    std::array<std::string, 256> spellings;
    for (char32_t c = 0; c < kCharacters; ++c) {
      if (table[c] >= 0) AppendUtf8(c, &spellings[static_cast<size_t>(table[c])]);
    }
    return spellings;
  }();
  std::string spelling;
  for (const char byte : bytes) spelling += kSpellings[static_cast<unsigned char>(byte)];
  return spelling;
}

std::optional<uint8_t> ByteOfFallbackToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc() || end != token.data() + 5 || value < 0) return std::nullopt;
  return static_cast<uint8_t>(value);
}

std::string FallbackToken(uint8_t byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

}  // namespace tessera::coordinator
