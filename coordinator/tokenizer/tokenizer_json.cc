#include "coordinator/tokenizer/tokenizer_json.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "coordinator/tokenizer/bpe_model_json.h"
#include "coordinator/tokenizer/normalizer.h"
#include "coordinator/tokenizer/post_processor.h"
#include "coordinator/tokenizer/text/json_fields.h"
#include "coordinator/tokenizer/text/pre_tokenizer.h"
#include "coordinator/tokenizer/token_limits.h"
#include "coordinator/tokenizer/unigram_model_json.h"
#include "coordinator/tokenizer/vocabulary.h"
#include "coordinator/tokenizer/word_encoder.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr std::string_view kWhere = "tokenizer.json";
constexpr std::string_view kGpt2Special = "<|endoftext|>";

// The "added_tokens" of the file.
absl::Status ReadAddedTokens(const nlohmann::json& list, Vocabulary* vocabulary) {
  if (list.is_null()) return absl::OkStatus();
  if (!list.is_array()) {
    return absl::InvalidArgumentError(StrCat(kWhere, ": \"added_tokens\" must be a list"));
  }
  vocabulary->Announce(list.size());
  for (const nlohmann::json& item : list) {
    AddedToken token;
    const std::string where = StrCat(kWhere, ": added_tokens");
    auto content = RequiredString(item, where, "content");
    if (!content.ok()) return content.status();
    auto id = RequiredInteger(item, where, "id", 0, kMaxTokenId);
    if (!id.ok()) return id.status();
    token.content = *std::move(content);
    token.id = static_cast<int32_t>(*id);
    for (const auto& [key, flag] :
         {std::pair("special", &token.special), std::pair("normalized", &token.normalized),
          std::pair("single_word", &token.single_word), std::pair("lstrip", &token.lstrip),
          std::pair("rstrip", &token.rstrip)}) {
      auto value = BoolField(item, where, key, false);
      if (!value.ok()) return value.status();
      *flag = *value;
    }
    if (auto status = vocabulary->AddAddedToken(std::move(token)); !status.ok()) {
      return absl::InvalidArgumentError(StrCat(where, ": ", StdView(status.message())));
    }
  }
  return absl::OkStatus();
}

// transformers adds what the small files name and tokenizer.json does not hold.
absl::Status AddFromConfig(const TokenizerConfig& config, Vocabulary* vocabulary) {
  const auto add = [&](const AddedToken& token) {
    const absl::Status status = vocabulary->AddAddedToken(token);
    if (status.ok()) return status;
    return absl::InvalidArgumentError(StrCat("tokenizer_config.json: ", StdView(status.message())));
  };
  for (const auto& [id, token] : config.added_tokens) {
    AddedToken copy = token;
    for (const AddedToken& special : config.special_tokens) {
      copy.special = copy.special || special.content == token.content;
    }
    if (auto status = add(copy); !status.ok()) return status;
  }
  for (const AddedToken& token : config.special_tokens) {
    if (token.content.empty()) continue;
    if (auto status = add(token); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// add_bos_token and add_eos_token of tokenizer_config.json, where given, replace the
// post-processor.
absl::Status ApplyConfig(const TokenizerConfig& config, TokenizerParts* parts) {
  if (!config.add_bos_token.has_value() && !config.add_eos_token.has_value()) {
    return absl::OkStatus();
  }
  // A token that nothing names is none, as in transformers 5.
  const bool bos = config.add_bos_token.value_or(config.IsLlama()) && config.bos_token.has_value();
  const bool eos = config.add_eos_token.value_or(false) && config.eos_token.has_value();
  if ((bos && !parts->bos_id) || (eos && !parts->eos_id)) {
    return absl::InvalidArgumentError(
        "tokenizer_config.json: add_bos_token or add_eos_token is true, but that token is not in "
        "the vocabulary");
  }
  parts->prefix.clear();
  parts->suffix.clear();
  if (bos) parts->prefix.push_back(*parts->bos_id);
  if (eos) parts->suffix.push_back(*parts->eos_id);
  return absl::OkStatus();
}

// All tokens by id. A plain added token that matches normalised text is that text in an answer too:
// behind Llama 2's normaliser, which writes a space before every text, it keeps that space. Special
// ones are only what the file says, as nobody wants a space for a token that is left out.
std::vector<TokenDecoder::Entry> EntriesOf(const Vocabulary& vocabulary,
                                           const WordEncoder& encoder) {
  std::vector<TokenDecoder::Entry> entries = vocabulary.Entries();
  for (const AddedToken& token : encoder.normalized()) {
    if (!token.special) entries[token.id].text = token.content;
  }
  return entries;
}

// What either kind of "model" says beside its tokens.
using ModelSpec = std::variant<BpeModelSpec, UnigramModelSpec>;

absl::StatusOr<ModelSpec> ReadModel(const nlohmann::json& model, Vocabulary* vocabulary) {
  if (!IsUnigramModel(model)) {
    auto bpe = ReadBpeModel(model, vocabulary);
    if (!bpe.ok()) return bpe.status();
    return ModelSpec(*std::move(bpe));
  }
  auto unigram = ReadUnigramModel(model, vocabulary);
  if (!unigram.ok()) return unigram.status();
  return ModelSpec(*std::move(unigram));
}

absl::StatusOr<WordModel> BuildModel(ModelSpec model, bool byte_level,
                                     const Vocabulary& vocabulary) {
  if (auto* spec = std::get_if<BpeModelSpec>(&model)) {
    auto bpe = BuildBpe(std::move(*spec), byte_level, vocabulary);
    if (!bpe.ok()) return bpe.status();
    return WordModel(*std::move(bpe));
  }
  if (byte_level) {
    return absl::InvalidArgumentError(
        StrCat(kWhere, ": pre_tokenizer ByteLevel before a Unigram model is not supported"));
  }
  auto unigram = BuildUnigram(std::get<UnigramModelSpec>(std::move(model)), vocabulary);
  if (!unigram.ok()) return unigram.status();
  return WordModel(*std::move(unigram));
}

// The lines of merges.txt, without the one that tells its version.
absl::StatusOr<nlohmann::json> ReadMergeLines(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(StrCat(path.string(), ": cannot be read"));
  auto lines = nlohmann::json::array();
  std::string line;
  size_t bytes = 0;
  while (std::getline(file, line)) {
    bytes += line.size() + 1;
    if (bytes > kMaxTokenizerFileBytes) {
      return absl::InvalidArgumentError(StrCat(path.string(), ": too large"));
    }
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with("#version")) continue;
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

absl::StatusOr<TokenizerParts> TokenizerOfDocument(const nlohmann::json& document,
                                                   const TokenizerConfig& config) {
  if (auto status = OnlyFields(document, kWhere,
                               {"version", "truncation", "padding", "added_tokens", "normalizer",
                                "pre_tokenizer", "post_processor", "decoder", "model"});
      !status.ok()) {
    return status;
  }
  Vocabulary vocabulary;
  auto model = ReadModel(FieldOrNull(document, "model"), &vocabulary);
  if (!model.ok()) return model.status();
  if (auto status = ReadAddedTokens(FieldOrNull(document, "added_tokens"), &vocabulary);
      !status.ok()) {
    return status;
  }
  if (auto status = AddFromConfig(config, &vocabulary); !status.ok()) return status;
  auto normalizer = Normalizer::FromJson(FieldOrNull(document, "normalizer"));
  if (!normalizer.ok()) return normalizer.status();
  auto pre_tokenizer = PreTokenizer::FromJson(FieldOrNull(document, "pre_tokenizer"));
  if (!pre_tokenizer.ok()) return pre_tokenizer.status();
  auto rules = DecodeRules::FromJson(FieldOrNull(document, "decoder"));
  if (!rules.ok()) return rules.status();
  auto built = BuildModel(*std::move(model), pre_tokenizer->byte_level(), vocabulary);
  if (!built.ok()) return built.status();
  auto encoder = WordEncoder::Make(vocabulary.added(), *std::move(normalizer),
                                   *std::move(pre_tokenizer), *std::move(built));
  if (!encoder.ok()) return encoder.status();

  TokenizerParts parts;
  parts.decoder = TokenDecoder(*std::move(rules), EntriesOf(vocabulary, **encoder));
  parts.encoder = *std::move(encoder);
  auto post =
      PostProcessor::FromJson(FieldOrNull(document, "post_processor"), parts.decoder.size());
  if (!post.ok()) return post.status();
  parts.prefix = std::move(post->prefix);
  parts.suffix = std::move(post->suffix);
  if (config.bos_token) parts.bos_id = vocabulary.Find(*config.bos_token);
  if (config.eos_token) parts.eos_id = vocabulary.Find(*config.eos_token);
  parts.ids = vocabulary.TakeIds();
  if (auto status = ApplyConfig(config, &parts); !status.ok()) return status;
  return parts;
}

absl::StatusOr<TokenizerParts> LoadTokenizerJson(const std::filesystem::path& path,
                                                 const TokenizerConfig& config) {
  auto document = ReadJsonFile(path, kMaxTokenizerFileBytes);
  if (!document.ok()) return document.status();
  return TokenizerOfDocument(*document, config);
}

absl::StatusOr<TokenizerParts> ParseTokenizerJson(std::string_view text,
                                                  const TokenizerConfig& config) {
  auto document = ParseJson(text, kWhere);
  if (!document.ok()) return document.status();
  return TokenizerOfDocument(*document, config);
}

absl::StatusOr<TokenizerParts> LoadVocabAndMerges(const std::filesystem::path& folder,
                                                  const TokenizerConfig& config) {
  auto vocab = ReadJsonFile(folder / "vocab.json", kMaxTokenizerFileBytes);
  if (!vocab.ok()) return vocab.status();
  auto merges = ReadMergeLines(folder / "merges.txt");
  if (!merges.ok()) return merges.status();
  TokenizerConfig filled = config;
  if (vocab->is_object() && vocab->contains(kGpt2Special)) {
    const std::string special(kGpt2Special);
    for (auto* token : {&filled.bos_token, &filled.eos_token, &filled.unk_token}) {
      if (token->has_value()) continue;
      *token = special;
      filled.special_tokens.push_back({.content = special, .special = true});
    }
  }
  nlohmann::json document;
  document["pre_tokenizer"] = {{"type", "ByteLevel"},
                               {"add_prefix_space", config.add_prefix_space.value_or(false)}};
  document["decoder"] = {{"type", "ByteLevel"}};
  document["model"]["type"] = "BPE";
  document["model"]["vocab"] = *std::move(vocab);
  document["model"]["merges"] = *std::move(merges);
  return TokenizerOfDocument(document, filled);
}

}  // namespace tessera::coordinator
