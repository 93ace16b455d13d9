#include "coordinator/tokenizer/text/unicode_class.h"

#include <utf8proc.h>

#include <array>
#include <map>
#include <memory>
#include <vector>

namespace tessera::coordinator {
namespace {

constexpr int kBlockBits = 8;
constexpr char32_t kBlockSize = 1 << kBlockBits;
constexpr char32_t kBlocks = 0x110000 >> kBlockBits;

bool IsWhiteSpace(char32_t c, utf8proc_category_t category) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
         category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

uint8_t Compute(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  uint8_t bits = 0;
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) bits |= kLetter;
  if (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME) bits |= kMark;
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) bits |= kNumber;
  if (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO) bits |= kPunctuation;
  if (IsWhiteSpace(c, category)) bits |= kWhiteSpace;
  const bool joiner = c == 0x200C || c == 0x200D;
  // Alphabetic also holds letter numbers (Nl) and the circled letters.
  const bool circled = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                       (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  if ((bits & (kLetter | kMark)) != 0 || category == UTF8PROC_CATEGORY_ND ||
      category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC || joiner || circled) {
    bits |= kWordPart;
  }
  return bits;
}

// Two stages, equal blocks shared: about 70 KB instead of 1.1 MB.
struct Table {
  std::array<uint16_t, kBlocks> block;
  std::vector<std::array<uint8_t, kBlockSize>> classes;

  Table() {
    std::map<std::array<uint8_t, kBlockSize>, uint16_t> seen;
    for (char32_t b = 0; b < kBlocks; ++b) {
      std::array<uint8_t, kBlockSize> values;
      for (char32_t i = 0; i < kBlockSize; ++i) values[i] = Compute((b << kBlockBits) + i);
      const auto [it, added] = seen.emplace(values, static_cast<uint16_t>(classes.size()));
      if (added) classes.push_back(values);
      block[b] = it->second;
    }
  }
};

}  // namespace

uint8_t UnicodeClassOf(char32_t code_point) {
  static const auto* const table = new Table();  // never destroyed: threads may outlive main
  if (code_point >= 0x110000) return 0;
  return table->classes[table->block[code_point >> kBlockBits]][code_point & (kBlockSize - 1)];
}

}  // namespace tessera::coordinator
