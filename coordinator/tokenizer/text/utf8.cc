#include "coordinator/tokenizer/text/utf8.h"

#include <cstdint>
#include <cstring>

namespace tessera::coordinator {
namespace {

// What stands at the head of some bytes.
struct Sequence {
  enum Kind { kValid, kTruncated, kInvalid } kind;
  size_t length;  // valid: of the character; else of the maximal subpart
};

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

// The legal range of the second byte (Unicode table 3-7); the rest are plain continuations.
bool IsSecondByte(uint8_t lead, char c) {
  const uint8_t second = static_cast<uint8_t>(c);
  switch (lead) {
    case 0xE0: return second >= 0xA0 && second <= 0xBF;
    case 0xED: return second >= 0x80 && second <= 0x9F;
    case 0xF0: return second >= 0x90 && second <= 0xBF;
    case 0xF4: return second >= 0x80 && second <= 0x8F;
    default: return IsContinuation(c);
  }
}

size_t LengthOfLead(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

Sequence Classify(std::string_view bytes) {
  const uint8_t lead = static_cast<uint8_t>(bytes[0]);
  const size_t length = LengthOfLead(lead);
  if (length == 0) return {Sequence::kInvalid, 1};
  size_t have = 1;
  while (have < length && have < bytes.size()) {
    const bool good = have == 1 ? IsSecondByte(lead, bytes[1]) : IsContinuation(bytes[have]);
    if (!good) return {Sequence::kInvalid, have};
    ++have;
  }
  return {have == length ? Sequence::kValid : Sequence::kTruncated, have};
}

// Length of the ASCII run at the head of `text`, eight bytes at a time.
size_t AsciiPrefix(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (i < text.size() && static_cast<uint8_t>(text[i]) < 0x80) ++i;
  return i;
}

}  // namespace

size_t FindInvalidUtf8(std::string_view text) {
  size_t i = 0;
  while (true) {
    i += AsciiPrefix(text.substr(i));
    if (i == text.size()) return std::string_view::npos;
    const Sequence sequence = Classify(text.substr(i));
    if (sequence.kind != Sequence::kValid) return i;
    i += sequence.length;
  }
}

char32_t NextCodePoint(std::string_view text, size_t* offset) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data()) + *offset;
  const uint8_t lead = bytes[0];
  if (lead < 0x80) {
    *offset += 1;
    return lead;
  }
  if (lead < 0xE0) {
    *offset += 2;
    return (lead & 0x1Fu) << 6 | (bytes[1] & 0x3Fu);
  }
  if (lead < 0xF0) {
    *offset += 3;
    return (lead & 0x0Fu) << 12 | (bytes[1] & 0x3Fu) << 6 | (bytes[2] & 0x3Fu);
  }
  *offset += 4;
  return (lead & 0x07u) << 18 | (bytes[1] & 0x3Fu) << 12 | (bytes[2] & 0x3Fu) << 6 |
         (bytes[3] & 0x3Fu);
}

char32_t PreviousCodePoint(std::string_view text, size_t* offset) {
  size_t start = *offset - 1;
  while (start > 0 && IsContinuation(text[start])) --start;
  *offset = start;
  return NextCodePoint(text, &start);
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

size_t DecodeUtf8(std::string_view bytes, InvalidBytes invalid, bool final, std::string* out) {
  size_t i = 0;
  while (i < bytes.size()) {
    const size_t ascii = AsciiPrefix(bytes.substr(i));
    out->append(bytes, i, ascii);
    i += ascii;
    if (i == bytes.size()) break;
    const Sequence sequence = Classify(bytes.substr(i));
    if (sequence.kind == Sequence::kTruncated && !final) break;
    if (sequence.kind == Sequence::kValid) {
      out->append(bytes, i, sequence.length);
      i += sequence.length;
    } else {
      out->append(kReplacementCharacter);
      i += invalid == InvalidBytes::kOnePerByte ? 1 : sequence.length;
    }
  }
  return i;
}

std::string Excerpt(std::string_view text) {
  constexpr size_t kShown = 64;
  std::string out = "\"";
  DecodeUtf8(text.substr(0, kShown), InvalidBytes::kOnePerSubpart, text.size() <= kShown, &out);
  return out + (text.size() > kShown ? "...\"" : "\"");
}

}  // namespace tessera::coordinator
