#include "coordinator/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "coordinator/tokenizer/gguf_tokenizer.h"
#include "coordinator/tokenizer/incremental_decoder.h"
#include "coordinator/tokenizer/rank_tokenizer.h"
#include "coordinator/tokenizer/sentencepiece_tokenizer.h"
#include "coordinator/tokenizer/text/utf8.h"
#include "coordinator/tokenizer/tokenizer_config.h"
#include "coordinator/tokenizer/tokenizer_json.h"
#include "proto/model/folder_contents.h"
#include "proto/model/gguf_header.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

absl::Status CheckUtf8(std::string_view text) {
  const size_t offset = FindInvalidUtf8(text);
  if (offset == std::string_view::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("the text is not valid UTF-8: byte ", offset, " cannot be decoded"));
}

// Empty where the folder has none.
std::filesystem::path FindTiktoken(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::path found = folder / "tiktoken.model";
  if (std::filesystem::exists(found, error)) return found;
  found.clear();
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const bool fits = entry.path().extension() == ".tiktoken";
    if (fits && (found.empty() || entry.path() < found)) found = entry.path();
  }
  return found;
}

absl::StatusOr<TokenizerParts> LoadParts(const std::filesystem::path& folder) {
  if (HasGgufName(folder.string())) return LoadGgufTokenizer(folder);
  auto config = TokenizerConfig::Load(folder);
  if (!config.ok()) return config.status();
  const auto has = [&folder](const char* name) {
    std::error_code error;
    return std::filesystem::exists(folder / name, error);
  };
  if (has("tokenizer.json")) return LoadTokenizerJson(folder / "tokenizer.json", *config);
  if (has("tokenizer.model")) return LoadSentencePiece(folder / "tokenizer.model", *config);
  if (has("vocab.json") && has("merges.txt")) return LoadVocabAndMerges(folder, *config);
  if (has("tekken.json")) return LoadTekken(folder / "tekken.json", *config);
  const std::filesystem::path tiktoken = FindTiktoken(folder);
  if (!tiktoken.empty()) return LoadTiktoken(tiktoken, *config);
  return CheckTokenizerFiles(folder);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(
    const std::filesystem::path& model_folder) {
  auto parts = LoadParts(model_folder);
  if (!parts.ok()) return parts.status();
  return std::make_unique<Tokenizer>(*std::move(parts));
}

Tokenizer::Tokenizer(TokenizerParts parts) : parts_(std::move(parts)) {}

bool Tokenizer::adds_bos() const {
  return parts_.bos_id.has_value() && !parts_.prefix.empty() &&
         parts_.prefix.front() == *parts_.bos_id;
}

std::optional<int32_t> Tokenizer::TokenId(std::string_view token_text) const {
  const auto it = parts_.ids.find(std::string(token_text));
  if (it == parts_.ids.end()) return std::nullopt;
  return it->second;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeView(const MarkedView& input) const {
  std::vector<int32_t> ids;
  ids.reserve(input.text.size() / 4 + 8);
  if (auto status = parts_.encoder->Encode(input, &ids); !status.ok()) return status;
  return ids;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view utf8_text,
                                                       const EncodeOptions& options) const {
  if (auto status = CheckUtf8(utf8_text); !status.ok()) return status;
  const auto specials =
      options.parse_special_tokens ? SpecialTokens::kEverywhere : SpecialTokens::kNowhere;
  auto ids = EncodeView({utf8_text, specials, {}});
  if (ids.ok() && options.add_special_tokens) {
    ids->insert(ids->begin(), parts_.prefix.begin(), parts_.prefix.end());
    ids->insert(ids->end(), parts_.suffix.begin(), parts_.suffix.end());
  }
  return ids;
}

int64_t Tokenizer::MinTokens(std::string_view utf8_text) const {
  const TokenReach reach = parts_.encoder->reach();
  if (reach.max_bytes == 0) return 0;
  // What is surely no white space: visible ASCII.
  const auto counted = [](char c) { return c > 0x20 && c < 0x7F; };
  const auto bytes = reach.swallows_space
                         ? std::count_if(utf8_text.begin(), utf8_text.end(), counted)
                         : static_cast<int64_t>(utf8_text.size());
  return bytes / reach.max_bytes;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeSegments(
    absl::Span<const TextSegment> segments, bool add_special_tokens) const {
  MarkedText input{"", SpecialTokens::kInTemplate, ""};
  for (const TextSegment& segment : segments) {
    input.text += segment.text;
    input.mask.append(segment.text.size(), segment.from_template ? '\1' : '\0');
  }
  if (auto status = CheckUtf8(input.text); !status.ok()) return status;
  auto ids = EncodeView(input.View());
  if (!ids.ok() || !add_special_tokens) return ids;
  const auto& prefix = parts_.prefix;
  const bool there =
      ids->size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids->begin());
  if (!there) ids->insert(ids->begin(), prefix.begin(), prefix.end());
  ids->insert(ids->end(), parts_.suffix.begin(), parts_.suffix.end());
  return ids;
}

std::string Tokenizer::Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const {
  IncrementalDecoder decoder(*this, skip_special_tokens);
  std::string text;
  for (const int32_t id : ids) text += decoder.Append(id);
  return text + decoder.Flush();
}

}  // namespace tessera::coordinator
