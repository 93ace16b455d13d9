// What each token id is in output text: the vocabulary with the "decoder" of a tokenizer.json
// carried out token by token. IncrementalDecoder joins the parts.
//
// Understood decoders: ByteLevel, and sequences of Replace (string), Metaspace, ByteFallback, Fuse
// and Strip (at the start of fused text). Any other is refused by name. Immutable, thread-safe.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::coordinator {

struct DecodeRules {
  bool byte_level = false;     // tokens spell bytes; a character may span tokens
  bool byte_fallback = false;  // tokens like <0x41> are bytes; a character may span neighbours
  std::vector<std::pair<std::string, std::string>> replacements;  // in every token, in order
  std::string dropped_in_first;  // this is left out of the first token (Metaspace)
  std::string strip_text;        // so often as strip_count says, taken off the start
  int strip_count = 0;
  std::string separator;  // between tokens: " " where a file has no decoder

  // InvalidArgument names what is not supported. null: no decoder.
  static absl::StatusOr<DecodeRules> FromJson(const nlohmann::json& spec);
};

class TokenDecoder {
 public:
  struct Entry {
    std::string text;      // in the vocabulary's spelling; empty where the id has no token
    bool special = false;  // left out by skip_special_tokens
  };

  TokenDecoder() = default;
  // `entries` by id.
  TokenDecoder(DecodeRules rules, std::vector<Entry> entries);

  int32_t size() const { return static_cast<int32_t>(parts_.size()); }
  const DecodeRules& rules() const { return rules_; }

  // For any id; "" and false where it has no token.
  std::string_view Text(int32_t id) const;
  std::string_view Bytes(int32_t id) const;  // as it stands in output text, anywhere but first
  bool IsSpecial(int32_t id) const { return Has(id) && parts_[id].special; }
  bool IsByte(int32_t id) const { return Has(id) && parts_[id].is_byte; }

 private:
  struct Part {
    uint32_t text_begin, text_size;
    uint32_t bytes_begin, bytes_size;
    bool special, is_byte;
  };
  bool Has(int32_t id) const { return id >= 0 && id < size(); }

  DecodeRules rules_;
  std::string storage_;
  std::vector<Part> parts_;
};

}  // namespace tessera::coordinator
