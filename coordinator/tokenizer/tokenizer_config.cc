#include "coordinator/tokenizer/tokenizer_config.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "coordinator/tokenizer/text/json_fields.h"
#include "coordinator/tokenizer/token_limits.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr size_t kMaxFileBytes = 64 << 20;
constexpr std::array<const char*, 7> kNamedTokens = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

// The file's object, or an empty one where there is no such file.
absl::StatusOr<nlohmann::json> ReadOptional(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return nlohmann::json::object();
  auto json = ReadJsonFile(path, kMaxFileBytes);
  if (json.ok() && !json->is_object()) {
    return absl::InvalidArgumentError(StrCat(path.string(), ": must be an object"));
  }
  return json;
}

// A token written as a string or as an object with flags.
absl::StatusOr<AddedToken> TokenFromJson(const nlohmann::json& value, std::string_view where,
                                         bool special) {
  AddedToken token;
  token.special = special;
  if (value.is_string()) {
    token.content = value.get<std::string>();
    return token;
  }
  auto content = RequiredString(value, where, "content");
  if (!content.ok()) return content.status();
  token.content = *std::move(content);
  const std::array<std::pair<const char*, bool*>, 5> flags = {{{"single_word", &token.single_word},
                                                               {"lstrip", &token.lstrip},
                                                               {"rstrip", &token.rstrip},
                                                               {"normalized", &token.normalized},
                                                               {"special", &token.special}}};
  for (const auto& [name, flag] : flags) {
    auto read = BoolField(value, where, name, *flag);
    if (!read.ok()) return read.status();
    *flag = *read;
  }
  token.special = token.special || special;
  return token;
}

absl::Status CheckToken(const AddedToken& token, std::string_view where) {
  if (token.content.size() <= kMaxAddedTokenBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(where, ": an added token of ", token.content.size(),
                                           " bytes; the limit is ", kMaxAddedTokenBytes));
}

absl::StatusOr<std::optional<bool>> OptionalBool(const nlohmann::json& object,
                                                 std::string_view where, const char* key) {
  if (FieldOrNull(object, key).is_null()) return std::optional<bool>();
  auto value = BoolField(object, where, key, false);
  if (!value.ok()) return value.status();
  return std::optional<bool>(*value);
}

// Reads the files into one TokenizerConfig.
class ConfigReader {
 public:
  absl::StatusOr<TokenizerConfig> Read(const std::filesystem::path& folder) {
    const std::string config_name = (folder / "tokenizer_config.json").string();
    auto json = ReadOptional(config_name);
    if (!json.ok()) return json.status();
    auto map = ReadOptional(folder / "special_tokens_map.json");
    if (!map.ok()) return map.status();
    auto old_added = ReadOptional(folder / "added_tokens.json");
    if (!old_added.ok()) return old_added.status();
    return Read(*json, *map, *old_added, config_name, (folder / "added_tokens.json").string());
  }

  absl::StatusOr<TokenizerConfig> Read(const nlohmann::json& json, const nlohmann::json& map,
                                       const nlohmann::json& old_added,
                                       const std::string& config_name,
                                       const std::string& added_name) {
    auto name = StringField(json, config_name, "tokenizer_class", "");
    if (!name.ok()) return name.status();
    config_.tokenizer_class = *std::move(name);
    for (const absl::Status& status :
         {Flags(json, config_name), Added(json, config_name), OldAdded(old_added, added_name),
          Named(json, map, config_name), Additional(json, map, config_name)}) {
      if (!status.ok()) return status;
    }
    return std::move(config_);
  }

 private:
  absl::Status Flags(const nlohmann::json& json, std::string_view where) {
    const std::array<std::pair<const char*, std::optional<bool>*>, 4> flags = {
        {{"add_bos_token", &config_.add_bos_token},
         {"add_eos_token", &config_.add_eos_token},
         {"add_prefix_space", &config_.add_prefix_space},
         {"legacy", &config_.legacy}}};
    for (const auto& [key, flag] : flags) {
      auto value = OptionalBool(json, where, key);
      if (!value.ok()) return value.status();
      *flag = *value;
    }
    return absl::OkStatus();
  }

  absl::Status Added(const nlohmann::json& json, std::string_view where) {
    const nlohmann::json& decoder = FieldOrNull(json, "added_tokens_decoder");
    if (decoder.is_null()) return absl::OkStatus();
    if (!decoder.is_object()) {
      return absl::InvalidArgumentError(
          StrCat(where, ": \"added_tokens_decoder\" must be an object"));
    }
    for (const auto& item : decoder.items()) {
      int32_t id = -1;
      const std::string& key = item.key();
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size() || id < 0 || id > kMaxTokenId) {
        return absl::InvalidArgumentError(StrCat(where, ": added_tokens_decoder: \"", key,
                                                 "\" is not an id from 0 to ", kMaxTokenId));
      }
      auto token =
          TokenFromJson(item.value(), StrCat(where, ": added_tokens_decoder ", key), false);
      if (!token.ok()) return token.status();
      if (auto status = CheckToken(*token, where); !status.ok()) return status;
      token->id = id;
      config_.added_tokens[id] = *std::move(token);
    }
    return absl::OkStatus();
  }

  // The older way: a map from token to id, all of them plain.
  absl::Status OldAdded(const nlohmann::json& json, std::string_view where) {
    if (!config_.added_tokens.empty()) return absl::OkStatus();
    for (const auto& item : json.items()) {
      auto id = RequiredInteger(json, where, item.key().c_str(), 0, kMaxTokenId);
      if (!id.ok()) return id.status();
      AddedToken token;
      token.content = item.key();
      token.id = static_cast<int32_t>(*id);
      token.normalized = true;
      if (auto status = CheckToken(token, where); !status.ok()) return status;
      config_.added_tokens[token.id] = std::move(token);
    }
    return absl::OkStatus();
  }

  absl::Status Named(const nlohmann::json& json, const nlohmann::json& map,
                     std::string_view where) {
    for (const char* key : kNamedTokens) {
      const nlohmann::json& own = FieldOrNull(json, key);
      const nlohmann::json& value = own.is_null() ? FieldOrNull(map, key) : own;
      if (value.is_null()) continue;
      auto token = TokenFromJson(value, StrCat(where, ": ", key), true);
      if (!token.ok()) return token.status();
      if (auto status = CheckToken(*token, where); !status.ok()) return status;
      const std::string_view name(key);
      if (name == "bos_token") config_.bos_token = token->content;
      if (name == "eos_token") config_.eos_token = token->content;
      if (name == "unk_token") config_.unk_token = token->content;
      config_.special_tokens.push_back(*std::move(token));
    }
    return absl::OkStatus();
  }

  absl::Status Additional(const nlohmann::json& json, const nlohmann::json& map,
                          std::string_view where) {
    for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
      const nlohmann::json& own = FieldOrNull(json, key);
      const nlohmann::json& list = own.is_null() ? FieldOrNull(map, key) : own;
      if (list.is_null()) continue;
      if (!list.is_array() && !list.is_object()) {
        return absl::InvalidArgumentError(StrCat(where, ": \"", key, "\" must be a list"));
      }
      for (const nlohmann::json& value : list) {
        auto token = TokenFromJson(value, StrCat(where, ": ", key), true);
        if (!token.ok()) return token.status();
        if (auto status = CheckToken(*token, where); !status.ok()) return status;
        config_.special_tokens.push_back(*std::move(token));
      }
    }
    return absl::OkStatus();
  }

  TokenizerConfig config_;
};

}  // namespace

bool TokenizerConfig::IsLlama() const {
  return tokenizer_class.starts_with("Llama") || tokenizer_class.starts_with("CodeLlama") ||
         tokenizer_class.starts_with("Gemma");
}

absl::StatusOr<TokenizerConfig> TokenizerConfig::FromJson(const nlohmann::json& object,
                                                          const std::string& name) {
  const nlohmann::json none = nlohmann::json::object();
  return ConfigReader().Read(object, none, none, name, name);
}

absl::StatusOr<TokenizerConfig> TokenizerConfig::Load(const std::filesystem::path& folder) {
  return ConfigReader().Read(folder);
}

}  // namespace tessera::coordinator
