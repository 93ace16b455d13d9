#include "coordinator/tokenizer/rank_tokenizer.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "coordinator/tokenizer/gguf_words.h"
#include "coordinator/tokenizer/text/byte_alphabet.h"
#include "coordinator/tokenizer/text/json_fields.h"
#include "coordinator/tokenizer/token_limits.h"
#include "coordinator/tokenizer/tokenizer_json.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

using nlohmann::json;

// tokenizer_class of Kimi K2 and K2.5.
constexpr std::string_view kKimiClass = "TikTokenTokenizer";
// Splits of all tokens; published vocabularies have a few for each.
constexpr size_t kMaxMerges = size_t{1} << 23;

// By rank; ids are `first_id` higher.
struct RankedTokens {
  std::vector<std::string> tokens;  // "" where there is none
  int64_t first_id = 0;
};

absl::Status Wrong(const std::filesystem::path& path, std::string_view what) {
  return absl::InvalidArgumentError(StrCat(path.string(), ": ", what));
}

absl::StatusOr<std::string> BytesOf(std::string_view base64, size_t rank) {
  std::string bytes;
  if (!absl::Base64Unescape(absl::string_view(base64.data(), base64.size()), &bytes) ||
      bytes.empty() || bytes.size() > kMaxTokenBytes) {
    return absl::InvalidArgumentError(
        StrCat("the token of rank ", rank, " is no base64 of 1 to ", kMaxTokenBytes, " bytes"));
  }
  return bytes;
}

absl::Status Place(std::string bytes, int64_t rank, RankedTokens* ranked) {
  if (rank < 0 || rank > kMaxTokenId) {
    return absl::InvalidArgumentError(StrCat("a token has the rank ", rank));
  }
  const auto at = static_cast<size_t>(rank);
  if (at >= ranked->tokens.size()) ranked->tokens.resize(at + 1);
  if (!ranked->tokens[at].empty()) {
    return absl::InvalidArgumentError(StrCat("two tokens have the rank ", rank));
  }
  ranked->tokens[at] = std::move(bytes);
  return absl::OkStatus();
}

// Bound the time and the memory of MergesOf. Published vocabularies have tokens of a few hundred
// bytes: some 10^8 bytes hashed, 10^7 spelled.
constexpr uint64_t kMaxHashedBytes = uint64_t{1} << 33, kMaxSpelledBytes = uint64_t{1} << 28;

// Any two parts of a token may meet in a text, and become it with the token's rank.
absl::StatusOr<json> MergesOf(const RankedTokens& ranked) {
  std::unordered_map<std::string_view, size_t> ranks;
  for (size_t rank = 0; rank < ranked.tokens.size(); ++rank) {
    if (!ranked.tokens[rank].empty()) ranks.emplace(ranked.tokens[rank], rank);
  }
  json merges = json::array();
  uint64_t hashed_bytes = 0, spelled_bytes = 0;
  for (const std::string_view token : ranked.tokens) {
    hashed_bytes += uint64_t{token.size()} * token.size();
    if (hashed_bytes > kMaxHashedBytes)
      return absl::InvalidArgumentError("its tokens are too long");
    std::vector<std::tuple<size_t, size_t, size_t>> splits;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ranks.find(token.substr(0, cut)), right = ranks.find(token.substr(cut));
      if (left == ranks.end() || right == ranks.end()) continue;
      splits.emplace_back(left->second, right->second, cut);
    }
    std::sort(splits.begin(), splits.end());
    spelled_bytes += splits.size() * token.size();
    if (spelled_bytes > kMaxSpelledBytes)
      return absl::InvalidArgumentError("its tokens are too long");
    for (const auto& [left, right, cut] : splits) {
      merges.push_back({SpellingOf(token.substr(0, cut)), SpellingOf(token.substr(cut))});
    }
    if (merges.size() > kMaxMerges) return absl::InvalidArgumentError("its tokens are too long");
  }
  return merges;
}

// `added`: special tokens, as tokenizer.json has them. A token that is spelled as one of them is
// left out: text cannot mean both.
absl::StatusOr<TokenizerParts> Build(RankedTokens ranked, std::string_view pattern,
                                     const json& added, const TokenizerConfig& config) {
  std::unordered_set<std::string> special;
  for (const json& token : added) special.insert(token.at("content").get<std::string>());
  json vocab = json::object();
  for (size_t rank = 0; rank < ranked.tokens.size(); ++rank) {
    if (ranked.tokens[rank].empty()) continue;
    std::string spelling = SpellingOf(ranked.tokens[rank]);
    if (special.contains(spelling)) {
      ranked.tokens[rank].clear();
      continue;
    }
    vocab[std::move(spelling)] = ranked.first_id + static_cast<int64_t>(rank);
  }
  absl::StatusOr<json> merges = MergesOf(ranked);
  if (!merges.ok()) return merges.status();
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", std::string(pattern)}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  json document;
  document["model"] = {{"type", "BPE"}, {"ignore_merges", true}};
  document["model"]["vocab"] = std::move(vocab);
  document["model"]["merges"] = *std::move(merges);
  document["added_tokens"] = added;
  document["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
  document["decoder"] = {{"type", "ByteLevel"}};
  return TokenizerOfDocument(document, config);
}

// What files up to version 7 leave out.
constexpr std::array<std::string_view, 20> kTekkenSpecials = {"<unk>",
                                                              "<s>",
                                                              "</s>",
                                                              "[INST]",
                                                              "[/INST]",
                                                              "[AVAILABLE_TOOLS]",
                                                              "[/AVAILABLE_TOOLS]",
                                                              "[TOOL_RESULTS]",
                                                              "[/TOOL_RESULTS]",
                                                              "[TOOL_CALLS]",
                                                              "[IMG]",
                                                              "<pad>",
                                                              "[IMG_BREAK]",
                                                              "[IMG_END]",
                                                              "[PREFIX]",
                                                              "[MIDDLE]",
                                                              "[SUFFIX]",
                                                              "[SYSTEM_PROMPT]",
                                                              "[/SYSTEM_PROMPT]",
                                                              "[TOOL_CONTENT]"};

// The first `count` ids, in the form of tokenizer.json.
absl::StatusOr<json> TekkenSpecials(const json& document, int64_t count) {
  constexpr std::string_view kWhere = "special_tokens";
  std::vector<std::string> texts;
  for (int64_t id = 0; id < count; ++id) texts.push_back(StrCat("<SPECIAL_", id, ">"));
  const json& listed = FieldOrNull(document, "special_tokens");
  if (listed.is_null()) {
    for (size_t id = 0; id < std::min(kTekkenSpecials.size(), texts.size()); ++id) {
      texts[id] = kTekkenSpecials[id];
    }
  } else if (!listed.is_array()) {
    return absl::InvalidArgumentError("special_tokens must be a list");
  } else {
    for (const json& token : listed) {
      const auto rank = RequiredInteger(token, kWhere, "rank", 0, count - 1);
      if (!rank.ok()) return rank.status();
      auto text = RequiredString(token, kWhere, "token_str");
      if (!text.ok()) return text.status();
      texts[static_cast<size_t>(*rank)] = *std::move(text);
    }
  }
  json added = json::array();
  for (int64_t id = 0; id < count; ++id) {
    added.push_back({{"content", texts[static_cast<size_t>(id)]}, {"id", id}, {"special", true}});
  }
  return added;
}

absl::StatusOr<TokenizerParts> TekkenOfDocument(const json& document, TokenizerConfig config) {
  const json& sizes = FieldOrNull(document, "config");
  const auto pattern = RequiredString(sizes, "config", "pattern");
  if (!pattern.ok()) return pattern.status();
  const auto specials =
      RequiredInteger(sizes, "config", "default_num_special_tokens", 0, kMaxUnusedIds);
  if (!specials.ok()) return specials.status();
  const auto all = RequiredInteger(sizes, "config", "default_vocab_size", *specials, kMaxTokenId);
  if (!all.ok()) return all.status();
  auto added = TekkenSpecials(document, *specials);
  if (!added.ok()) return added.status();
  const json& vocab = FieldOrNull(document, "vocab");
  const int64_t count = *all - *specials;  // the file has more
  if (!vocab.is_array() || static_cast<int64_t>(vocab.size()) < count) {
    return absl::InvalidArgumentError(
        StrCat("vocab must be a list of at least ", count, " tokens, as config says"));
  }
  RankedTokens ranked = {.tokens = {}, .first_id = *specials};
  for (int64_t i = 0; i < count; ++i) {
    const json& token = vocab[static_cast<size_t>(i)];
    const auto rank = RequiredInteger(token, "vocab", "rank", 0, count - 1);
    if (!rank.ok()) return rank.status();
    const auto text = RequiredString(token, "vocab", "token_bytes");
    if (!text.ok()) return text.status();
    auto bytes = BytesOf(*text, static_cast<size_t>(*rank));
    if (!bytes.ok()) return bytes.status();
    if (absl::Status s = Place(*std::move(bytes), *rank, &ranked); !s.ok()) return s;
  }
  if (!config.bos_token.has_value()) config.bos_token = "<s>";
  if (!config.eos_token.has_value()) config.eos_token = "</s>";
  if (!config.add_bos_token.has_value()) config.add_bos_token = true;
  return Build(std::move(ranked), *pattern, *added, config);
}

absl::StatusOr<RankedTokens> ReadTiktoken(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError("cannot be read");
  RankedTokens ranked;
  size_t bytes = 0, number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    bytes += line.size() + 1;
    if (bytes > kMaxTokenizerFileBytes) return absl::InvalidArgumentError("too large");
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    int64_t rank = 0;
    if (space == std::string::npos || !absl::SimpleAtoi(line.substr(space + 1), &rank)) {
      return absl::InvalidArgumentError(
          StrCat("line ", number, " is no base64 of a token, a space, and its rank"));
    }
    auto token = BytesOf(std::string_view(line).substr(0, space), static_cast<size_t>(rank));
    if (!token.ok()) return token.status();
    if (absl::Status s = Place(*std::move(token), rank, &ranked); !s.ok()) return s;
  }
  if (ranked.tokens.empty()) return absl::InvalidArgumentError("it holds no token");
  return ranked;
}

absl::StatusOr<TokenizerParts> Named(const std::filesystem::path& path,
                                     absl::StatusOr<TokenizerParts> parts) {
  if (parts.ok()) return parts;
  return absl::Status(parts.status().code(),
                      StrCat(path.string(), ": ", StdView(parts.status().message())));
}

}  // namespace

absl::StatusOr<TokenizerParts> LoadTekken(const std::filesystem::path& path,
                                          const TokenizerConfig& config) {
  const auto document = ReadJsonFile(path, kMaxTokenizerFileBytes);
  if (!document.ok()) return document.status();
  return Named(path, TekkenOfDocument(*document, config));
}

absl::StatusOr<TokenizerParts> LoadTiktoken(const std::filesystem::path& path,
                                            const TokenizerConfig& config) {
  if (config.tokenizer_class != kKimiClass) {
    return Wrong(path, StrCat("the folder's only tokenizer is a tiktoken file, which does not say "
                              "how it splits text; that is known where tokenizer_config.json says "
                              "tokenizer_class '",
                              kKimiClass, "' (Kimi), and here it says '",
                              config.tokenizer_class.substr(0, 60),
                              "': put the tokenizer.json of the same model beside it (its Hugging "
                              "Face form has one)"));
  }
  auto ranked = ReadTiktoken(path);
  if (!ranked.ok()) return Named(path, ranked.status());
  return Named(path, Build(*std::move(ranked), kKimiPattern, json::array(), config));
}

}  // namespace tessera::coordinator
