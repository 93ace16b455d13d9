#include "proto/model/gguf_generation.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

using nlohmann::json;

constexpr std::string_view kSampling = "general.sampling.";
constexpr std::string_view kSuppressed = "tokenizer.ggml.suppress_tokens";
constexpr size_t kMaxShown = 60;

struct Name {
  std::string_view gguf, config;
};
constexpr std::array kNames = {Name{"temp", "temperature"}, Name{"top_k", "top_k"},
                               Name{"top_p", "top_p"}, Name{"min_p", "min_p"},
                               Name{"penalty_repeat", "repetition_penalty"}};
// Settings of mirostat and xtc, which do nothing where these are off, and the reach of a penalty.
constexpr std::array<std::string_view, 4> kSettings = {"mirostat_tau", "mirostat_eta",
                                                       "xtc_threshold", "penalty_last_n"};

std::optional<double> NumberOf(const GgufValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return std::nullopt;
}

absl::Status Refused(std::string_view file, std::string_view key, std::string_view why) {
  return absl::InvalidArgumentError(StrCat(file, ": key '", key.substr(0, kMaxShown), "' ", why));
}

}  // namespace

absl::StatusOr<json> GgufGenerationConfig(const GgufHeader& header, std::string_view file) {
  json config = json::object();
  if (const auto* ids = header.Find<std::vector<int64_t>>(kSuppressed)) {
    const auto* tokens = header.Find<std::vector<std::string>>("tokenizer.ggml.tokens");
    json& suppressed = config["suppress_tokens"] = json::array();
    for (const int64_t id : *ids) {
      const bool is_token =
          id >= 0 && tokens != nullptr && id < static_cast<int64_t>(tokens->size());
      if (is_token) suppressed.push_back(id);
    }
  } else if (header.keys.contains(kSuppressed)) {
    return Refused(file, kSuppressed, "is no list of ids");
  }
  for (auto at = header.keys.lower_bound(kSampling);
       at != header.keys.end() && at->first.starts_with(kSampling); ++at) {
    const std::string_view key = std::string_view(at->first).substr(kSampling.size());
    const std::optional<double> number = NumberOf(at->second);
    const auto* name = std::find_if(kNames.begin(), kNames.end(),
                                    [key](const Name& one) { return one.gguf == key; });
    if (name != kNames.end() && number.has_value()) {
      if (const auto* integer = std::get_if<int64_t>(&at->second)) {
        config[std::string(name->config)] = *integer;
      } else {
        config[std::string(name->config)] = *number;
      }
      continue;
    }
    const bool setting = std::find(kSettings.begin(), kSettings.end(), key) != kSettings.end();
    if (setting || number == 0) continue;
    return Refused(file, at->first,
                   "is not understood, and may change what the model answers: not supported");
  }
  return config;
}

}  // namespace tessera
