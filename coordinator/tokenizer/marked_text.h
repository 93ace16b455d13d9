// Text on its way to token ids, with the knowledge of where special tokens may be recognised in it.
// Plain values: MarkedView borrows, MarkedText owns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::coordinator {

enum class SpecialTokens : uint8_t {
  kEverywhere,  // completions prompts, /tokenize
  kNowhere,     // Hugging Face's split_special_tokens
  kInTemplate,  // only where the mask is 1: chat prompts
};

struct MarkedView {
  std::string_view text;
  SpecialTokens specials = SpecialTokens::kEverywhere;
  std::string_view mask;  // kInTemplate: a byte for each of text, 1 where the template wrote it

  MarkedView Slice(size_t begin, size_t end) const {
    return {text.substr(begin, end - begin), specials,
            mask.empty() ? mask : mask.substr(begin, end - begin)};
  }
};

struct MarkedText {
  std::string text;
  SpecialTokens specials = SpecialTokens::kEverywhere;
  std::string mask;

  MarkedView View() const { return {text, specials, mask}; }
};

}  // namespace tessera::coordinator
