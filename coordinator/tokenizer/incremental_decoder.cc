#include "coordinator/tokenizer/incremental_decoder.h"

#include "coordinator/tokenizer/text/utf8.h"

namespace tessera::coordinator {

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens,
                                       bool continues_text)
    : decoder_(&tokenizer.decoder()),
      skip_special_tokens_(skip_special_tokens),
      first_(!continues_text),
      strip_left_(continues_text ? 0 : decoder_->rules().strip_count) {}

std::string IncrementalDecoder::Append(int32_t id) {
  const DecodeRules& rules = decoder_->rules();
  if (decoder_->Text(id).empty()) return "";
  if (skip_special_tokens_ && decoder_->IsSpecial(id)) return "";
  const std::string_view bytes = decoder_->Bytes(id);
  std::string out;
  if (rules.byte_level || decoder_->IsByte(id)) {
    const auto invalid =
        rules.byte_level ? InvalidBytes::kOnePerSubpart : InvalidBytes::kOnePerByte;
    held_bytes_.append(bytes);
    held_bytes_.erase(0, DecodeUtf8(held_bytes_, invalid, false, &out));
  } else {
    DecodeUtf8(held_bytes_, InvalidBytes::kOnePerByte, true, &out);
    held_bytes_.clear();
    if (!first_) out += rules.separator;
    if (first_ && !rules.dropped_in_first.empty()) {
      // The first token loses every mark that stands for a space.
      std::string text(decoder_->Text(id));
      for (size_t at = text.find(rules.dropped_in_first); at != std::string::npos;
           at = text.find(rules.dropped_in_first, at)) {
        text.erase(at, rules.dropped_in_first.size());
      }
      out += text;
    } else {
      out += bytes;
    }
  }
  first_ = false;
  Strip(&out);
  return out;
}

std::string IncrementalDecoder::Flush() {
  std::string out;
  const auto invalid =
      decoder_->rules().byte_level ? InvalidBytes::kOnePerSubpart : InvalidBytes::kOnePerByte;
  DecodeUtf8(held_bytes_, invalid, true, &out);
  held_bytes_.clear();
  Strip(&out);
  return out;
}

void IncrementalDecoder::Strip(std::string* text) {
  const std::string& strip = decoder_->rules().strip_text;
  while (strip_left_ > 0 && !text->empty()) {
    if (!text->starts_with(strip)) {
      strip_left_ = 0;
    } else {
      text->erase(0, strip.size());
      --strip_left_;
    }
  }
}

}  // namespace tessera::coordinator
