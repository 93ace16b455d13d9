#include "coordinator/tokenizer/text/character_map.h"

#include <utf8proc.h>

#include <algorithm>

#include "coordinator/tokenizer/text/utf8.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr size_t kUnitBytes = 4;
constexpr size_t kMaxGraphemeBytes = 5;

uint32_t UnitAt(std::string_view bytes, size_t at) {
  uint32_t unit = 0;
  for (size_t i = 0; i < kUnitBytes; ++i) {
    unit |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[at + i])) << (8 * i);
  }
  return unit;
}

// A unit of darts-clone: whether a text ends here, by which byte it was reached, the place of its
// first value, and how far its children are.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & 0x7fffffff; }
uint32_t LabelOf(uint32_t unit) { return unit & (uint32_t{1} << 31 | 0xff); }
uint32_t OffsetOf(uint32_t unit) { return unit >> 10 << ((unit & uint32_t{1} << 9) >> 6); }

}  // namespace

absl::StatusOr<CharacterMap> CharacterMap::Parse(std::string_view bytes) {
  const size_t size = bytes.size() < kUnitBytes ? 0 : UnitAt(bytes, 0);
  if (size == 0 || size % kUnitBytes != 0 || size > bytes.size() - kUnitBytes) {
    return absl::InvalidArgumentError("its trie is cut off, or of a size that cannot be");
  }
  CharacterMap map;
  for (size_t at = kUnitBytes; at < kUnitBytes + size; at += kUnitBytes) {
    map.units_.push_back(UnitAt(bytes, at));
  }
  map.texts_ = bytes.substr(kUnitBytes + size);
  if (const size_t bad = FindInvalidUtf8(map.texts_); bad != std::string_view::npos) {
    return absl::InvalidArgumentError(StrCat("its texts are no UTF-8 from byte ", bad, " on"));
  }
  return map;
}

std::optional<std::string_view> CharacterMap::Find(std::string_view text) const {
  size_t node = OffsetOf(units_[0]);
  for (const char byte : text) {
    const auto label = static_cast<uint8_t>(byte);
    node ^= label;
    if (label == 0 || node >= units_.size() || LabelOf(units_[node]) != label) return std::nullopt;
    const uint32_t unit = units_[node];
    node ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    if (node >= units_.size() || ValueOf(units_[node]) >= texts_.size()) return std::nullopt;
    const std::string_view rest = std::string_view(texts_).substr(ValueOf(units_[node]));
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

void CharacterMap::Append(std::string_view grapheme, std::string* out) const {
  if (grapheme.size() <= kMaxGraphemeBytes) {
    if (const auto found = Find(grapheme)) {
      out->append(*found);
      return;
    }
  }
  for (size_t at = 0; at < grapheme.size();) {
    const size_t begin = at;
    NextCodePoint(grapheme, &at);
    const std::string_view character = grapheme.substr(begin, at - begin);
    out->append(Find(character).value_or(character));
  }
}

size_t EndOfGrapheme(std::string_view text, size_t begin) {
  size_t end = begin;
  utf8proc_int32_t state = 0;
  auto last = static_cast<utf8proc_int32_t>(NextCodePoint(text, &end));
  while (end < text.size()) {
    size_t behind = end;
    const auto next = static_cast<utf8proc_int32_t>(NextCodePoint(text, &behind));
    if (utf8proc_grapheme_break_stateful(last, next, &state)) break;
    last = next;
    end = behind;
  }
  return end;
}

}  // namespace tessera::coordinator
