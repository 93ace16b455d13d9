#include "coordinator/tokenizer/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/tokenizer/gguf_words.h"
#include "coordinator/tokenizer/sentencepiece_tokenizer.h"
#include "coordinator/tokenizer/tokenizer_config.h"
#include "coordinator/tokenizer/tokenizer_json.h"
#include "proto/model/gguf_config.h"
#include "proto/model/gguf_header.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

// tokenizer.ggml.token_type; SentencePiece's numbers.
enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5 };

// Keys that are read, here or where a model is read, or that are of no use here: names of tokens
// for gaps in a text, and what only tokenizers of encoders have.
constexpr std::array<std::string_view, 14> kKnownKeys = {"model",
                                                         "pre",
                                                         "tokens",
                                                         "token_type",
                                                         "scores",
                                                         "merges",
                                                         "token_type_count",
                                                         "add_bos_token",
                                                         "add_eos_token",
                                                         "add_sep_token",
                                                         "add_space_prefix",
                                                         "remove_extra_whitespaces",
                                                         "chat_template",
                                                         "suppress_tokens"};
constexpr std::string_view kPrefix = "tokenizer.ggml.", kIdSuffix = "_token_id";

// What both kinds of tokenizers have.
struct GgufTokens {
  std::vector<std::string> texts;
  std::vector<int64_t> types;  // as many
};

absl::Status Wrong(std::string_view key, std::string_view why) {
  return absl::InvalidArgumentError(StrCat("key 'tokenizer.ggml.", key, "' ", why));
}

// A key that nobody reads, and that says something, may change ids.
absl::Status CheckKeys(const GgufHeader& header) {
  for (const auto& [whole, value] : header.keys) {
    if (!whole.starts_with(kPrefix) || whole.ends_with(kIdSuffix)) continue;
    const std::string_view key = std::string_view(whole).substr(kPrefix.size());
    if (std::find(kKnownKeys.begin(), kKnownKeys.end(), key) != kKnownKeys.end()) continue;
    const auto* flag = std::get_if<int64_t>(&value);
    if (flag != nullptr && *flag == 0) continue;
    return Wrong(key.substr(0, 40), "is not understood, and may change how text is read");
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufTokens> ReadTokens(const GgufHeader& header) {
  GgufTokens tokens;
  const auto* texts = header.Find<std::vector<std::string>>("tokenizer.ggml.tokens");
  if (texts == nullptr) return Wrong("tokens", "is missing, or no list of texts");
  tokens.texts = *texts;
  tokens.types.assign(texts->size(), kNormal);
  if (const auto* types = header.Find<std::vector<int64_t>>("tokenizer.ggml.token_type")) {
    if (types->size() != texts->size()) {
      return Wrong("token_type",
                   StrCat("has ", types->size(), " entries for ", texts->size(), " tokens"));
    }
    tokens.types = *types;
  }
  return tokens;
}

// tokenizer.json of byte-level BPE.
absl::StatusOr<nlohmann::json> BpeDocument(const GgufHeader& header, const GgufTokens& tokens,
                                           const GgufWords& words) {
  const auto* merges = header.Find<std::vector<std::string>>("tokenizer.ggml.merges");
  if (merges == nullptr) return Wrong("merges", "is missing, or no list of texts");
  nlohmann::json document;
  nlohmann::json& model = document["model"];
  model = {{"type", "BPE"}, {"ignore_merges", words.whole_words_first}};
  nlohmann::json& vocab = model["vocab"];
  nlohmann::json added = nlohmann::json::array();
  vocab = nlohmann::json::object();
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    const int64_t type = tokens.types[id];
    if (type == kUnused) continue;
    vocab[tokens.texts[id]] = id;
    if (type != kControl && type != kUserDefined) continue;
    added.push_back({{"content", tokens.texts[id]}, {"id", id}, {"special", type == kControl}});
  }
  model["merges"] = *merges;
  document["added_tokens"] = std::move(added);
  document["normalizer"] = words.normalizer;
  document["pre_tokenizer"] = words.pre_tokenizer;
  document["decoder"] = {{"type", "ByteLevel"}};
  return document;
}

// tokenizer.json of Gemma 4: BPE over characters, whose spaces are marks, and bytes where there is
// no token. Lines are merged apart from each other, and as many line ends as a token has are that
// token, whatever merges would give.
absl::StatusOr<nlohmann::json> MarkedBpeDocument(const GgufHeader& header,
                                                 const GgufTokens& tokens) {
  constexpr std::string_view kMark = "\u2581";
  const auto pattern = [](const char* kind, std::string_view text) {
    return nlohmann::json{{kind, std::string(text)}};
  };
  GgufWords words;
  words.normalizer = {
      {"type", "Replace"}, {"pattern", pattern("String", " ")}, {"content", std::string(kMark)}};
  words.pre_tokenizer = {{"type", "Split"},
                         {"pattern", pattern("Regex", R"([^\n]+|[\n]+)")},
                         {"behavior", "Isolated"},
                         {"invert", false}};
  auto document = BpeDocument(header, tokens, words);
  if (!document.ok()) return document;
  (*document)["model"]["byte_fallback"] = true;
  auto steps = nlohmann::json::array();
  steps.push_back({{"type", "Replace"}, {"pattern", pattern("String", kMark)}, {"content", " "}});
  steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  (*document)["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(steps)}};
  nlohmann::json& added = (*document)["added_tokens"];
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    const std::string& text = tokens.texts[id];
    if (tokens.types[id] != kNormal || text.empty()) continue;
    if (text.find_first_not_of('\n') != std::string::npos) continue;
    added.push_back({{"content", text}, {"id", id}, {"special", false}});
  }
  return document;
}

// Writes a SentencePiece ModelProto (sentencepiece_model.proto), field by field.
class ProtoWriter {
 public:
  void Number(int field, uint64_t value) {
    Varint(static_cast<uint64_t>(field) << 3);
    Varint(value);
  }
  void Float(int field, float value) {
    Varint(static_cast<uint64_t>(field) << 3 | 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift & 0xff);
  }
  void Bytes(int field, std::string_view value) {
    Varint(static_cast<uint64_t>(field) << 3 | 2);
    Varint(value.size());
    bytes_ += value;
  }
  std::string& bytes() { return bytes_; }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

bool Flag(const GgufHeader& header, std::string_view key, bool otherwise) {
  const auto* value = header.Find<int64_t>(StrCat("tokenizer.ggml.", key));
  return value == nullptr ? otherwise : *value != 0;
}

// As tokenizer.ggml.token_type has it, but one piece alone may be unknown to the library: the one
// of the key, else the first. Converters mark tokens for padding so too (Phi-3).
std::vector<int64_t> PieceTypes(const GgufHeader& header, const GgufTokens& tokens) {
  std::vector<int64_t> types = tokens.types;
  const auto* id = header.Find<int64_t>("tokenizer.ggml.unknown_token_id");
  size_t unknown =
      static_cast<size_t>(std::find(types.begin(), types.end(), kUnknown) - types.begin());
  if (id != nullptr && *id >= 0 && *id < static_cast<int64_t>(types.size()))
    unknown = static_cast<size_t>(*id);
  std::replace(types.begin(), types.end(), int64_t{kUnknown}, int64_t{kUnused});
  if (unknown < types.size()) types[unknown] = kUnknown;
  return types;
}

absl::StatusOr<std::string> SentencePieceBytes(const GgufHeader& header, const GgufTokens& tokens) {
  const auto* scores = header.Find<std::vector<double>>("tokenizer.ggml.scores");
  if (scores == nullptr || scores->size() != tokens.texts.size()) {
    return Wrong("scores", "is missing, or not as long as the tokens");
  }
  constexpr uint64_t kBpe = 2;
  ProtoWriter model;
  const std::vector<int64_t> types = PieceTypes(header, tokens);
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    ProtoWriter piece;
    piece.Bytes(1, tokens.texts[id]);
    piece.Float(2, static_cast<float>((*scores)[id]));
    piece.Number(3, static_cast<uint64_t>(types[id]));
    model.Bytes(1, piece.bytes());
  }
  ProtoWriter trainer;
  trainer.Number(3, kBpe);
  trainer.Number(35, 1);  // bytes for what has no piece
  model.Bytes(2, trainer.bytes());
  ProtoWriter normalizer;
  normalizer.Bytes(1, "identity");
  normalizer.Number(3, Flag(header, "add_space_prefix", true) ? 1 : 0);
  normalizer.Number(4, Flag(header, "remove_extra_whitespaces", false) ? 1 : 0);
  normalizer.Number(5, 1);  // spaces are written as a mark
  model.Bytes(3, normalizer.bytes());
  return std::move(model.bytes());
}

absl::StatusOr<TokenizerParts> LoadBpe(const GgufHeader& header, const GgufTokens& tokens,
                                       TokenizerConfig config) {
  const auto* pre = header.Find<std::string>("tokenizer.ggml.pre");
  if (pre == nullptr) {
    return Wrong("pre",
                 "is missing: how text is split into words is not known; convert the model "
                 "again with a present llama.cpp");
  }
  const auto words = FindGgufWords(*pre);
  if (!words.ok()) return words.status();
  if (!config.add_bos_token.has_value() && words->adds_bos) config.add_bos_token = true;
  const auto document = BpeDocument(header, tokens, *words);
  if (!document.ok()) return document.status();
  return TokenizerOfDocument(*document, config);
}

absl::StatusOr<TokenizerParts> LoadMarkedBpe(const GgufHeader& header, const GgufTokens& tokens,
                                             TokenizerConfig config) {
  // Old files say no, and are wrong (llama.cpp reads them in the same way).
  config.add_bos_token = config.bos_token.has_value();
  const auto document = MarkedBpeDocument(header, tokens);
  if (!document.ok()) return document.status();
  return TokenizerOfDocument(*document, config);
}

absl::StatusOr<TokenizerParts> LoadScores(const GgufHeader& header, const GgufTokens& tokens,
                                          TokenizerConfig config) {
  // Others are the library's own: it finds them in text that it has normalised.
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    if (tokens.types[id] != kControl) continue;
    AddedToken token{.content = tokens.texts[id], .special = true};
    token.id = static_cast<int32_t>(id);
    config.added_tokens[token.id] = std::move(token);
  }
  auto bytes = SentencePieceBytes(header, tokens);
  if (!bytes.ok()) return bytes.status();
  return ParseSentencePiece(*std::move(bytes), "tokenizer.ggml", config);
}

absl::StatusOr<TokenizerParts> Load(const GgufHeader& header) {
  const auto* model = header.Find<std::string>("tokenizer.ggml.model");
  if (model == nullptr) return Wrong("model", "is missing: the file has no tokenizer");
  auto config = TokenizerConfig::FromJson(GgufTokenizerConfig(header), "tokenizer.ggml");
  if (!config.ok()) return config.status();
  if (absl::Status known = CheckKeys(header); !known.ok()) return known;
  const auto tokens = ReadTokens(header);
  if (!tokens.ok()) return tokens.status();
  if (*model == "gpt2") return LoadBpe(header, *tokens, *std::move(config));
  if (*model == "llama") return LoadScores(header, *tokens, *std::move(config));
  if (*model == "gemma4") return LoadMarkedBpe(header, *tokens, *std::move(config));
  return Wrong("model", StrCat("is '", model->substr(0, 40),
                               "': not supported; known are gpt2 and gemma4 (BPE), and llama "
                               "(SentencePiece)"));
}

}  // namespace

absl::StatusOr<TokenizerParts> LoadGgufTokenizer(const std::filesystem::path& path) {
  const auto header = ReadGgufHeader(path);
  if (!header.ok()) return header.status();
  auto parts = Load(*header);
  if (parts.ok()) return parts;
  return absl::Status(parts.status().code(),
                      StrCat(path.string(), ": ", StdView(parts.status().message())));
}

}  // namespace tessera::coordinator
