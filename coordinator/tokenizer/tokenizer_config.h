// What the small files beside a vocabulary say: tokenizer_config.json, special_tokens_map.json and
// added_tokens.json of a Hugging Face folder. Each may be missing; the first wins where two speak
// of the same thing. Plain values; Load reads files and is thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/added_tokens.h"

namespace tessera::coordinator {

struct TokenizerConfig {
  std::string tokenizer_class;
  // By id, from added_tokens_decoder or added_tokens.json.
  std::map<int32_t, AddedToken> added_tokens;
  // bos, eos, unk, sep, pad, cls, mask, then additional ones, in this order; ids are not set.
  std::vector<AddedToken> special_tokens;
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> unk_token;
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  std::optional<bool> add_prefix_space;
  std::optional<bool> legacy;  // of Llama's slow tokenizer

  // Whether tokenizer_class is Llama's or one of its kin, which put bos before a text by default.
  bool IsLlama() const;

  // What an object in the form of tokenizer_config.json says; errors call it `name`.
  static absl::StatusOr<TokenizerConfig> FromJson(const nlohmann::json& object,
                                                  const std::string& name);
  // InvalidArgument naming file and key.
  static absl::StatusOr<TokenizerConfig> Load(const std::filesystem::path& folder);
};

}  // namespace tessera::coordinator
