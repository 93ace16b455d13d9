// The tokenizer of a GGUF file gives the ids of the Hugging Face tokenizer that it was made from.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coordinator/jinja/chat_template.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "tests/fakes/gguf_file.h"
#include "tests/temporary_folder.h"

namespace tessera::coordinator {
namespace {

using Catch::Contains;
using nlohmann::json;
using tests::GgufBytes;
using tests::GgufKey;
using tests::GgufListKey;
using tests::GgufNumber;
using tests::GgufText;
using tests::GgufTextKey;
using tests::kGgufBool;
using tests::kGgufF32;
using tests::kGgufI32;
using tests::kGgufString;

const std::filesystem::path kGolden = "tests/golden/tokenizer";
constexpr int kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;

std::string Bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Token {
  std::string text;
  int type = kUnused;
  float score = 0;
};

std::vector<std::string> TokenKeys(const std::vector<Token>& tokens) {
  std::string texts, types, scores;
  for (const Token& token : tokens) {
    texts += GgufText(token.text);
    types += GgufNumber(static_cast<uint64_t>(token.type), 4);
    scores += GgufNumber(std::bit_cast<uint32_t>(token.score), 4);
  }
  return {GgufListKey("tokenizer.ggml.tokens", kGgufString, tokens.size(), texts),
          GgufListKey("tokenizer.ggml.token_type", kGgufI32, tokens.size(), types),
          GgufListKey("tokenizer.ggml.scores", kGgufF32, tokens.size(), scores)};
}

// The keys that convert_hf_to_gguf.py makes of a tokenizer.json of byte-level BPE.
std::vector<std::string> BpeKeys(const json& document, std::string_view pre) {
  std::vector<Token> tokens;
  const auto at = [&tokens](size_t id) -> Token& {
    if (id >= tokens.size()) tokens.resize(id + 1);
    return tokens[id];
  };
  for (const auto& [text, id] : document["model"]["vocab"].items()) at(id) = {text, kNormal};
  for (const json& added : document["added_tokens"]) {
    at(added["id"]) = {added["content"], added["special"] ? kControl : kUserDefined};
  }
  std::string merges;
  for (const json& merge : document["model"]["merges"]) {
    merges += GgufText(merge.is_string()
                           ? merge.get<std::string>()
                           : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  std::vector<std::string> keys = TokenKeys(tokens);
  keys.push_back(GgufTextKey("tokenizer.ggml.model", "gpt2"));
  keys.push_back(GgufTextKey("tokenizer.ggml.pre", pre));
  keys.push_back(GgufListKey("tokenizer.ggml.merges", kGgufString,
                             document["model"]["merges"].size(), merges));
  return keys;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::vector<std::string>& keys) {
  const tests::TemporaryFolder folder;
  folder.Write("model.gguf", GgufBytes(keys, {}, 0));
  return Tokenizer::Load(folder.path() / "model.gguf");
}

std::string ErrorOf(const std::vector<std::string>& keys) {
  return std::string(Load(keys).status().message());
}

// Of texts without `left_out`.
void CheckSameIds(const Tokenizer& gguf, const Tokenizer& folder,
                  const std::vector<std::string>& left_out = {}) {
  const json texts = json::parse(Bytes(kGolden / "texts.json"));
  REQUIRE(texts.size() > 100);
  const EncodeOptions plain = {.add_special_tokens = false, .parse_special_tokens = true};
  for (const json& text : texts) {
    CAPTURE(text.get<std::string>());
    const auto has = [&](const std::string& part) {
      return text.get<std::string>().find(part) != std::string::npos;
    };
    if (std::any_of(left_out.begin(), left_out.end(), has)) continue;
    const auto ids = gguf.Encode(text.get<std::string>(), plain);
    REQUIRE(ids.ok());
    CHECK(*ids == *folder.Encode(text.get<std::string>(), plain));
    CHECK(gguf.Decode(*ids, false) == folder.Decode(*ids, false));
  }
}

TEST_CASE("byte-level BPE: a name of tokenizer.ggml.pre splits as the model's tokenizer.json") {
  const std::pair<const char*, const char*> kFamilies[] = {
      {"gpt2", "gpt-2"},          {"llama3", "llama-bpe"}, {"qwen2", "qwen2"},
      {"starcoder", "starcoder"}, {"tekken", "tekken"},    {"deepseek", "deepseek-v3"}};
  for (const auto& [family, pre] : kFamilies) {
    CAPTURE(family);
    const json document = json::parse(Bytes(kGolden / family / "tokenizer.json"));
    std::vector<std::string> keys = BpeKeys(document, pre);
    // The vocabularies have no token of the begin, which llama-bpe adds unless a file says no.
    keys.push_back(GgufKey("tokenizer.ggml.add_bos_token", kGgufBool, GgufNumber(0, 1)));
    const auto gguf = Load(keys);
    INFO(gguf.status().ToString());
    REQUIRE(gguf.ok());
    // GGUF does not say whether a token takes the spaces beside it.
    std::vector<std::string> strips;
    for (const json& added : document["added_tokens"]) {
      if (added["lstrip"] || added["rstrip"]) strips.push_back(added["content"]);
    }
    CheckSameIds(**gguf, **Tokenizer::Load(kGolden / family), strips);
  }
}

// Gemma 4's vocabulary: characters, marks for spaces, bytes, and line ends that are a token.
TEST_CASE("BPE over characters gives the ids of a Gemma's tokenizer.json") {
  const json document = json::parse(Bytes(kGolden / "gemma" / "tokenizer.json"));
  json as_converted = document;
  for (json& added : as_converted["added_tokens"]) {
    const std::string text = added["content"];
    if (text.find_first_not_of('\n') != std::string::npos) continue;
    as_converted["model"]["vocab"][text] = added["id"];  // no user-defined one
  }
  std::erase_if(as_converted["added_tokens"].get_ref<json::array_t&>(), [](const json& added) {
    return added["content"].get<std::string>().find_first_not_of('\n') == std::string::npos;
  });
  std::vector<std::string> keys = BpeKeys(as_converted, "unread");
  keys.erase(keys.end() - 3, keys.end() - 1);  // model and pre
  keys.push_back(GgufTextKey("tokenizer.ggml.model", "gemma4"));
  keys.push_back(GgufKey("tokenizer.ggml.bos_token_id", 1));
  keys.push_back(GgufKey("tokenizer.ggml.add_bos_token", kGgufBool, GgufNumber(0, 1)));
  const auto gguf = Load(keys);
  INFO(gguf.status().ToString());
  REQUIRE(gguf.ok());
  CheckSameIds(**gguf, **Tokenizer::Load(kGolden / "gemma"));
  CHECK((*gguf)->adds_bos());
}

TEST_CASE("a key of the tokenizer that nobody reads is refused, unless it says nothing") {
  const json document = json::parse(Bytes(kGolden / "gpt2" / "tokenizer.json"));
  std::vector<std::string> keys = BpeKeys(document, "gpt-2");
  keys.push_back(GgufKey("tokenizer.ggml.fim_pre_token_id", 3));
  keys.push_back(GgufKey("tokenizer.ggml.normalizer.lowercase", kGgufBool, GgufNumber(0, 1)));
  CHECK(Load(keys).ok());
  keys.back() = GgufKey("tokenizer.ggml.normalizer.lowercase", kGgufBool, GgufNumber(1, 1));
  CHECK_THAT(ErrorOf(keys), Contains("'tokenizer.ggml.normalizer.lowercase' is not understood"));
}

// Fields of a protobuf message: (number, bytes of it).
std::vector<std::pair<int, std::string>> Fields(const std::string& message) {
  std::vector<std::pair<int, std::string>> fields;
  size_t i = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(message.at(i++));
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (i < message.size()) {
    const uint64_t tag = varint();
    const size_t begin = i;
    size_t bytes = 4;
    if (tag % 8 == 2) {
      bytes = varint();
      fields.emplace_back(tag / 8, message.substr(i, bytes));
      i += bytes;
    } else if (tag % 8 == 0) {
      fields.emplace_back(tag / 8, std::to_string(varint()));
    } else {
      fields.emplace_back(tag / 8, message.substr(begin, bytes));
      i += bytes;
    }
  }
  return fields;
}

// The pieces of a tokenizer.model, as convert_hf_to_gguf.py writes them.
std::vector<Token> PiecesOf(const std::string& model) {
  std::vector<Token> tokens;
  for (const auto& [number, piece] : Fields(model)) {
    if (number != 1) continue;
    Token token = {.text = "", .type = kNormal};
    for (const auto& [field, value] : Fields(piece)) {
      if (field == 1) token.text = value;
      if (field == 2) std::memcpy(&token.score, value.data(), sizeof(float));
      if (field == 3) token.type = std::stoi(value);
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::vector<std::string> PieceKeys(const std::vector<Token>& pieces) {
  std::vector<std::string> keys = TokenKeys(pieces);
  keys.push_back(GgufTextKey("tokenizer.ggml.model", "llama"));
  keys.push_back(GgufKey("tokenizer.ggml.bos_token_id", 1));
  keys.push_back(GgufKey("tokenizer.ggml.eos_token_id", 2));
  keys.push_back(GgufKey("tokenizer.ggml.unknown_token_id", 0));
  return keys;
}

TEST_CASE("SentencePiece: scores and bytes give the ids of the tokenizer.model") {
  const std::vector<Token> pieces = PiecesOf(Bytes(kGolden / "model_bpe" / "tokenizer.model"));
  REQUIRE(pieces.size() > 300);
  std::vector<std::string> keys = PieceKeys(pieces);
  const auto gguf = Load(keys);
  INFO(gguf.status().ToString());
  REQUIRE(gguf.ok());
  CheckSameIds(**gguf, **Tokenizer::Load(kGolden / "model_bpe"));
  CHECK((*gguf)->adds_bos());
  keys.push_back(GgufKey("tokenizer.ggml.add_bos_token", 7, GgufNumber(0, 1)));
  CHECK(!(*Load(keys))->adds_bos());
}

TEST_CASE("SentencePiece: several tokens may be marked as unknown, and the key says which is") {
  std::vector<Token> pieces = PiecesOf(Bytes(kGolden / "model_bpe" / "tokenizer.model"));
  pieces[0].type = 3;  // as Phi-3's <unk>
  for (int i = 0; i < 3; ++i) {
    pieces.push_back({.text = "<pad" + std::to_string(i) + ">", .type = 2});
  }
  const auto gguf = Load(PieceKeys(pieces));
  INFO(gguf.status().ToString());
  REQUIRE(gguf.ok());
  CheckSameIds(**gguf, **Tokenizer::Load(kGolden / "model_bpe"));
}

TEST_CASE("tokens that begin and end a text are those of the keys, else of the split's name") {
  const json document = json::parse(Bytes(kGolden / "llama3" / "tokenizer.json"));
  std::vector<std::string> keys = BpeKeys(document, "llama-bpe");
  keys.push_back(GgufKey("tokenizer.ggml.bos_token_id", 3));
  CHECK((*Load(keys))->adds_bos());
  CHECK((*Load(keys))->bos_id() == 3);
  keys.push_back(GgufKey("tokenizer.ggml.add_bos_token", 7, GgufNumber(0, 1)));
  CHECK(!(*Load(keys))->adds_bos());
  std::vector<std::string> glm = BpeKeys(document, "glm4");
  glm.push_back(GgufKey("tokenizer.ggml.bos_token_id", 3));
  CHECK(!(*Load(glm))->adds_bos());
}

TEST_CASE("what is not known of a tokenizer is refused by key and name") {
  const json document = json::parse(Bytes(kGolden / "gpt2" / "tokenizer.json"));
  CHECK_THAT(ErrorOf(BpeKeys(document, "gpt-17")),
             Contains("model.gguf: key 'tokenizer.ggml.pre' is 'gpt-17'") &&
                 Contains("known are llama-bpe"));
  // A part of a known name is none.
  CHECK_THAT(ErrorOf(BpeKeys(document, "llama")), Contains("'tokenizer.ggml.pre' is 'llama'"));
  CHECK_THAT(ErrorOf({GgufTextKey("tokenizer.ggml.model", "rwkv"),
                      GgufListKey("tokenizer.ggml.tokens", kGgufString, 0, "")}),
             Contains("'tokenizer.ggml.model' is 'rwkv'"));
  CHECK_THAT(ErrorOf({}), Contains("'tokenizer.ggml.model' is missing"));
  std::vector<std::string> keys = BpeKeys(document, "gpt-2");
  keys.erase(keys.end() - 2);
  CHECK_THAT(ErrorOf(keys), Contains("'tokenizer.ggml.pre' is missing"));
  CHECK_THAT(ErrorOf({GgufTextKey("tokenizer.ggml.model", "llama"), TokenKeys({{"a"}})[0]}),
             Contains("'tokenizer.ggml.scores' is missing"));
}

TEST_CASE("the chat template is the file's, with its special tokens") {
  const tests::TemporaryFolder folder;
  std::vector<std::string> keys = TokenKeys({{"<s>", kControl}, {"</s>", kControl}});
  keys.push_back(GgufKey("tokenizer.ggml.bos_token_id", 0));
  keys.push_back(
      GgufTextKey("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}"));
  folder.Write("model.gguf", GgufBytes(keys, {}, 0));
  const auto chat = ChatTemplate::Load(folder.path() / "model.gguf");
  INFO(chat.status().ToString());
  REQUIRE(chat.ok());
  const auto text = chat->Render({{"messages", {{{"role", "user"}, {"content", "hello"}}}}}, 0);
  REQUIRE(text.ok());
  std::string whole;
  for (const TextSegment& segment : *text) whole += segment.text;
  CHECK(whole == "<s>hello");
  folder.Write("other.gguf", GgufBytes({}, {}, 0));
  CHECK(absl::IsNotFound(ChatTemplate::Load(folder.path() / "other.gguf").status()));
}

}  // namespace
}  // namespace tessera::coordinator
