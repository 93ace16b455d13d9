// The tokenizer's edges: bad files, bad text, borders between template and client, streams,
// threads.

#include "coordinator/tokenizer/tokenizer.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "coordinator/tokenizer/incremental_decoder.h"
#include "coordinator/tokenizer/sentencepiece_tokenizer.h"
#include "coordinator/tokenizer/text/byte_alphabet.h"
#include "coordinator/tokenizer/text/utf8.h"
#include "coordinator/tokenizer/tokenizer_config.h"
#include "coordinator/tokenizer/tokenizer_json.h"
#include "tests/temporary_folder.h"

namespace {

using nlohmann::json;
using namespace tessera::coordinator;
using Ids = std::vector<int32_t>;

const std::filesystem::path kGolden = "tests/golden/tokenizer";

std::unique_ptr<Tokenizer> Load(const std::string& family) {
  auto tokenizer = Tokenizer::Load(kGolden / family);
  INFO(tokenizer.status().ToString());
  REQUIRE(tokenizer.ok());
  return *std::move(tokenizer);
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A small sound document, to be spoilt by each test.
json Document() {
  return json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<s>", "special": true, "normalized": false}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}, "merges": ["a b"]}})");
}

// The error of a document; it must be one, and name what is wrong.
void CheckRefused(const json& document, const std::string& named) {
  const auto parts = ParseTokenizerJson(document.dump(), {});
  REQUIRE(!parts.ok());
  CHECK(parts.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(parts.status().message()), Catch::Contains(named));
}

json With(const std::string& pointer, const json& value) {
  json document = Document();
  document[json::json_pointer(pointer)] = value;
  return document;
}

}  // namespace

TEST_CASE("what a tokenizer.json asks for and we do not have is refused by name") {
  REQUIRE(ParseTokenizerJson(Document().dump(), {}).ok());
  CheckRefused(With("/model/type", "Unigram"), "Unigram model: \"merges\" is not supported");
  CheckRefused(With("/model/type", "WordPiece"), "WordPiece");
  CheckRefused(With("/model/dropout", 0.1), "dropout");
  CheckRefused(With("/model/end_of_word_suffix", "</w>"), "end_of_word_suffix");
  CheckRefused(With("/model/surprise", 1), "surprise");
  CheckRefused(With("/surprise", 1), "surprise");
  CheckRefused(With("/normalizer", {{"type", "Precompiled"}}), "Precompiled");
  CheckRefused(With("/pre_tokenizer", {{"type", "UnicodeScripts"}}), "UnicodeScripts");
  CheckRefused(With("/decoder", {{"type", "WordPiece"}}), "WordPiece");
  CheckRefused(With("/post_processor", {{"type", "Magic"}}), "Magic");
  const json bad_pattern = {
      {"type", "Split"}, {"pattern", {{"Regex", "a(b"}}}, {"behavior", "Isolated"}};
  CheckRefused(With("/pre_tokenizer", bad_pattern), "regular expression");
  const json nested_set = {
      {"type", "Split"}, {"pattern", {{"Regex", "[a[bc]]"}}}, {"behavior", "Isolated"}};
  CheckRefused(With("/pre_tokenizer", nested_set), "a set inside a set");
}

TEST_CASE("a unigram model: what is wrong, and rules that are none, are named") {
  json sound = Document();
  sound["pre_tokenizer"] = {{"type", "Metaspace"}};
  sound["added_tokens"][0]["id"] = 3;
  sound["model"] = json::parse(R"({"type": "Unigram", "unk_id": 0,
      "vocab": [["<unk>", 0], ["a", -1.5], ["ab", -2]]})");
  REQUIRE(ParseTokenizerJson(sound.dump(), {}).ok());
  const auto with = [&](const std::string& pointer, const json& value) {
    json document = sound;
    document[json::json_pointer(pointer)] = value;
    return document;
  };
  CheckRefused(with("/model/unk_id", 3), "\"unk_id\" is 3");
  CheckRefused(with("/model/unk_id", nullptr), "unk_id");
  CheckRefused(with("/model/vocab", json::object()), "\"vocab\" must be a list");
  CheckRefused(with("/model/vocab/1", "a"), "piece 1 of \"vocab\" is no text with a score");
  CheckRefused(with("/model/vocab/1/0", "ab"), "piece \"ab\" is there twice");
  CheckRefused(with("/model/vocab/1/0", std::string(1025, 'x')), "longer than 1024 bytes");
  CheckRefused(with("/model/byte_fallback", true), "needs the piece <0x00>");
  CheckRefused(with("/pre_tokenizer", {{"type", "ByteLevel"}}), "ByteLevel before a Unigram model");
  for (const char* map : {"", "#", "AAAA", "CAAAAAAAAAA="}) {
    CheckRefused(with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", map}}),
                 "Precompiled: precompiled_charsmap");
  }
}

TEST_CASE("a hostile tokenizer.json is an error that names the thing") {
  CheckRefused(With("/model/vocab/d", -1), "\"d\" has id -1");
  CheckRefused(With("/model/vocab/d", 4'000'000'000), "\"d\" has id");
  CheckRefused(With("/model/vocab/d", 18'000'000'000'000'000'000u), "\"d\" has id");
  CheckRefused(With("/model/vocab/d", 4'000'000), "for a vocabulary of this size");
  CheckRefused(With("/model/vocab/d", 1), "the same id 1");
  CheckRefused(With("/model/vocab/d", "x"), "integer id");
  CheckRefused(With("/model/vocab", json::array()), "vocab");
  CheckRefused(With("/model/merges/0", "a z"), "\"z\", which is not in the vocabulary");
  CheckRefused(With("/model/merges/0", "b a"), "\"ba\", which is not in the vocabulary");
  CheckRefused(With("/model/merges/0", "a"), "merge 0 is not two tokens");
  CheckRefused(With("/model/merges/0", json::array({"", "a"})), "merge 0 is not two tokens");
  CheckRefused(With("/model/merges/0", 7), "merge 0 is not two tokens");
  CheckRefused(With("/added_tokens/0/id", 1), "which another token has");
  CheckRefused(With("/added_tokens/0/id", -5), "\"id\" is -5");
  CheckRefused(With("/added_tokens/0/content", "ab"), "the model's vocabulary says 2");
  CheckRefused(With("/added_tokens/0/content", std::string(5000, 'x')), "5000 bytes");
  const json roberta = {{"type", "RobertaProcessing"}, {"cls", {"x", 77}}, {"sep", {"y", 1}}};
  CheckRefused(With("/post_processor", roberta), "77 is outside of the vocabulary");
  std::string nested = Document().dump();
  nested.insert(1, "\"x\":" + std::string(100'000, '[') + std::string(100'000, ']') + ",");
  CHECK_THAT(std::string(ParseTokenizerJson(nested, {}).status().message()),
             Catch::Contains("nested deeper"));
  for (const std::string text : {"", "[]", "{", "nul", "{\"model\":{}}", "\xFF\xFE"}) {
    INFO(text);
    CHECK(ParseTokenizerJson(text, {}).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("a cut or bent tokenizer file never passes for a whole one") {
  const std::string whole = ReadAll(kGolden / "qwen2" / "tokenizer.json");
  for (size_t size = 0; size + 2 < whole.size(); size += 4099) {
    CHECK(!ParseTokenizerJson(whole.substr(0, size), {}).ok());
  }
  const std::string model = ReadAll(kGolden / "model_bpe" / "tokenizer.model");
  REQUIRE(ParseSentencePiece(model, "whole", {}).ok());
  for (size_t size = 0; size < model.size(); size += 37) {
    const auto parts = ParseSentencePiece(model.substr(0, size), "tokenizer.model", {});
    if (parts.ok()) continue;  // cut between pieces
    CHECK_THAT(std::string(parts.status().message()), Catch::StartsWith("tokenizer.model: "));
  }
}

TEST_CASE("a tokenizer in another form is called what it is, with what to use instead") {
  const auto error = [](const char* name, const char* content) {
    tessera::tests::TemporaryFolder folder;
    folder.Write(name, content);
    const auto tokenizer = Tokenizer::Load(folder.path());
    REQUIRE(tokenizer.status().code() == absl::StatusCode::kInvalidArgument);
    const std::string message(tokenizer.status().message());
    CHECK_THAT(message, Catch::StartsWith((folder.path() / name).string() + ": "));
    CHECK_THAT(message, Catch::Contains("tokenizer.json of the same model"));
    return message;
  };
  for (const char* text : {"IQ== 0\nIg== 1\n", "CgM= 17\r\n", "IQ== 0"}) {
    CHECK_THAT(error("tokenizer.model", text), Catch::Contains("a tiktoken file"));
  }
  CHECK_THAT(error("qwen.tiktoken", "IQ== 0\n"), Catch::Contains("a tiktoken file"));
  CHECK_THAT(error("tiktoken.model", "IQ== 0\n"), Catch::Contains("a tiktoken file"));
  for (const char* text : {"IQ==", "IQ== x\n", "IQ==  0\n", "", " 0\n", "IQ== 0x"}) {
    CAPTURE(text);
    const auto parts = ParseSentencePiece(text, "tokenizer.model", {});
    REQUIRE(!parts.ok());
    CHECK_THAT(std::string(parts.status().message()), !Catch::Contains("tiktoken"));
  }
}

namespace {

// By rank, in base64: the tokens of a golden vocabulary from an id on, without special ones.
std::vector<std::string> RankedTokens(const json& document, int first) {
  std::vector<std::string> tokens;
  for (const auto& [spelling, id] : document.at("model").at("vocab").items()) {
    const int rank = id.get<int>() - first;
    if (rank < 0) continue;
    if (rank >= static_cast<int>(tokens.size())) tokens.resize(static_cast<size_t>(rank) + 1);
    const auto bytes = BytesOfSpelling(spelling);
    REQUIRE(bytes.has_value());
    tokens[static_cast<size_t>(rank)] = absl::Base64Escape(*bytes);
  }
  return tokens;
}

std::vector<std::string> GoldenTexts() {
  return json::parse(ReadAll(kGolden / "texts.json")).get<std::vector<std::string>>();
}

json TekkenDocument() {
  const json document = json::parse(ReadAll(kGolden / "tekken" / "tokenizer.json"));
  const auto tokens = RankedTokens(document, 5);
  json tekken = {
      {"config",
       {{"pattern", document.at("/pre_tokenizer/pretokenizers/0/pattern/Regex"_json_pointer)},
        {"default_num_special_tokens", 5},
        {"default_vocab_size", tokens.size() + 5},
        {"version", "v11"}}},
      {"vocab", json::array()},
      {"special_tokens", json::array()}};
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    tekken["vocab"].push_back(
        {{"rank", rank}, {"token_bytes", tokens[rank]}, {"token_str", nullptr}});
  }
  // Files have more tokens than the vocabulary.
  tekken["vocab"].push_back({{"rank", tokens.size()}, {"token_bytes", "YWJjZGVm"}});
  for (const json& token : document.at("added_tokens")) {
    tekken["special_tokens"].push_back(
        {{"rank", token.at("id")}, {"token_str", token.at("content")}, {"is_control", true}});
  }
  return tekken;
}

}  // namespace

TEST_CASE("tekken.json gives the ids of the same model's tokenizer.json, behind its begin") {
  const auto folder_tokenizer = Load("tekken");
  const json tekken = TekkenDocument();
  tessera::tests::TemporaryFolder folder;
  folder.Write("tekken.json", tekken.dump());
  const auto loaded = Tokenizer::Load(folder.path());
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  const Tokenizer& tokenizer = **loaded;
  CHECK(tokenizer.adds_bos());
  CHECK(tokenizer.eos_id() == 2);
  CHECK(tokenizer.vocabulary_size() == folder_tokenizer->vocabulary_size());
  for (const std::string& text : GoldenTexts()) {
    CAPTURE(text);
    const EncodeOptions plain = {.add_special_tokens = false, .parse_special_tokens = true};
    const auto ids = tokenizer.Encode(text, plain);
    REQUIRE(ids.ok());
    CHECK(*ids == *folder_tokenizer->Encode(text, plain));
    CHECK(tokenizer.Decode(*ids, false) == folder_tokenizer->Decode(*ids, false));
  }
  CHECK(*tokenizer.Encode("a", {}) == Ids{1, 69});
}

TEST_CASE("tekken.json up to version 7 names no special tokens; damage is named") {
  const auto error = [](const std::string& pointer, const json& value) {
    json document = TekkenDocument();
    document[json::json_pointer(pointer)] = value;
    tessera::tests::TemporaryFolder folder;
    folder.Write("tekken.json", document.dump());
    const auto tokenizer = Tokenizer::Load(folder.path());
    REQUIRE(tokenizer.status().code() == absl::StatusCode::kInvalidArgument);
    const std::string message(tokenizer.status().message());
    CHECK_THAT(message, Catch::StartsWith((folder.path() / "tekken.json").string() + ": "));
    return message;
  };
  CHECK_THAT(error("/config/pattern", nullptr), Catch::Contains("pattern"));
  CHECK_THAT(error("/config/pattern", "("), Catch::Contains("regular expression"));
  CHECK_THAT(error("/config/default_vocab_size", 100000), Catch::Contains("at least 99995 tokens"));
  CHECK_THAT(error("/config/default_num_special_tokens", -1), Catch::Contains("special_tokens"));
  CHECK_THAT(error("/vocab/7/token_bytes", "?"), Catch::Contains("rank 7 is no base64"));
  CHECK_THAT(error("/vocab/7/rank", 8), Catch::Contains("two tokens have the rank 8"));
  CHECK_THAT(error("/special_tokens/0/rank", 5), Catch::Contains("rank"));
  json old = TekkenDocument();
  old.erase("special_tokens");
  tessera::tests::TemporaryFolder folder;
  folder.Write("tekken.json", old.dump());
  const auto tokenizer = Tokenizer::Load(folder.path());
  REQUIRE(tokenizer.ok());
  CHECK((*tokenizer)->TokenId("[INST]") == 3);
}

namespace {

// zlib's checksum of ids as little-endian numbers of four bytes.
uint32_t Crc32(const Ids& ids) {
  uint32_t sum = ~0u;
  for (const int32_t id : ids) {
    for (int byte = 0; byte < 4; ++byte) {
      sum ^= static_cast<uint32_t>(id) >> (8 * byte) & 0xff;
      for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
    }
  }
  return ~sum;
}

}  // namespace

// The ids are those of tiktoken 0.14 for these ranks with the pattern of Kimi's own code.
TEST_CASE("a tiktoken file of Kimi gives tiktoken's ids") {
  const json document = json::parse(ReadAll(kGolden / "llama3" / "tokenizer.json"));
  std::string lines;
  const auto tokens = RankedTokens(document, 0);
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    lines += tokens[rank] + " " + std::to_string(rank) + "\n";
  }
  tessera::tests::TemporaryFolder folder;
  folder.Write("tiktoken.model", lines);
  folder.Write("tokenizer_config.json", R"({"tokenizer_class": "TikTokenTokenizer",
      "bos_token": "[BOS]", "eos_token": "[EOS]", "added_tokens_decoder": {
        "802": {"content": "[BOS]", "special": true}, "803": {"content": "[EOS]", "special": true},
        "804": {"content": "<|im_middle|>", "special": true}}})");
  const auto loaded = Tokenizer::Load(folder.path());
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  const Tokenizer& tokenizer = **loaded;
  CHECK(*tokenizer.Encode("Hello你好World's 12345 naïve café", {}) ==
        Ids{39,  270, 75, 78,  160, 121, 254, 161, 98, 121, 54,  279, 344, 394,
            220, 397, 18, 398, 305, 64,  127, 107, 85, 68,  330, 69,  290});
  CHECK(*tokenizer.Encode("a<|im_middle|>", {}) == Ids{64, 804});
  CHECK(tokenizer.eos_id() == 803);
  Ids all;
  for (const std::string& text : GoldenTexts()) {
    const auto ids =
        tokenizer.Encode(text, {.add_special_tokens = false, .parse_special_tokens = false});
    REQUIRE(ids.ok());
    all.insert(all.end(), ids->begin(), ids->end());
  }
  CHECK(all.size() == 5496);
  CHECK(Crc32(all) == 3948630438u);
  folder.Write("tiktoken.model", "IQ== 0\nx\n");
  CHECK_THAT(std::string(Tokenizer::Load(folder.path()).status().message()),
             Catch::Contains("tiktoken.model: line 2 is no base64"));
  // Each cut of each token is a merge: n tokens would be spelled in n^3 / 3 bytes.
  lines.clear();
  for (size_t size = 1; size <= 1200; ++size) {
    lines += absl::Base64Escape(std::string(size, 'a')) + " " + std::to_string(size - 1) + "\n";
  }
  folder.Write("tiktoken.model", lines);
  CHECK_THAT(std::string(Tokenizer::Load(folder.path()).status().message()),
             Catch::Contains("its tokens are too long"));
}

TEST_CASE("a folder without a tokenizer says what was looked for") {
  const auto missing = Tokenizer::Load(kGolden / "no such folder");
  CHECK(missing.status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(missing.status().message()), Catch::Contains("tokenizer.model"));
}

TEST_CASE("text that is not UTF-8 is an error with the byte's offset") {
  const auto tokenizer = Load("llama3");
  for (const auto& [text, offset] :
       std::vector<std::pair<std::string, std::string>>{{"abc\xFF", "byte 3 "},
                                                        {"\xE2\x82", "byte 0 "},
                                                        {"ok \xED\xA0\x80", "byte 3 "},
                                                        {"\xC0\x80", "byte 0 "},
                                                        {"\xF4\x90\x80\x80", "byte 0 "}}) {
    const auto ids = tokenizer->Encode(text, {});
    CHECK(ids.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(ids.status().message()), Catch::Contains(offset));
    const std::vector<TextSegment> segments = {{text, false}};
    CHECK(!tokenizer->EncodeSegments(segments, true).ok());
  }
}

TEST_CASE("a client's text never becomes a special id, a template's does") {
  for (const char* family :
       {"gpt2", "roberta", "opt", "llama3", "qwen2", "tekken", "starcoder", "deepseek", "llama2",
        "llama_normalized", "mistral", "gemma", "flags", "model_bpe", "model_bpe_later"}) {
    INFO(family);
    const auto tokenizer = Load(family);
    const auto unknown = tokenizer->TokenId("<unk>");
    for (int32_t id = 0; id < tokenizer->vocabulary_size(); ++id) {
      if (!tokenizer->IsSpecial(id) || id == unknown) continue;
      const std::string text = tokenizer->TokenText(id);
      const std::vector<TextSegment> client = {{text, false}, {" " + text + text, false}};
      const auto ids = tokenizer->EncodeSegments(client, false);
      REQUIRE(ids.ok());
      for (const int32_t made : *ids) CHECK((made == unknown || !tokenizer->IsSpecial(made)));
      // A client's text before and behind cannot hide the template's token either.
      const std::vector<TextSegment> mixed = {
          {text.substr(0, 1), false}, {text, true}, {text.substr(1), false}};
      const auto with = tokenizer->EncodeSegments(mixed, false);
      REQUIRE(with.ok());
      const bool raw_match = std::string(family) != "llama_normalized";
      if (raw_match) CHECK(std::count(with->begin(), with->end(), id) == 1);
    }
  }
}

TEST_CASE("bos is put before a text once") {
  const auto tokenizer = Load("llama3");
  REQUIRE(tokenizer->adds_bos());
  const int32_t bos = *tokenizer->bos_id();
  const std::vector<TextSegment> begins = {{"<|begin_of_text|>", true}, {"Hi", false}};
  const std::vector<TextSegment> plain = {{"Hi", false}};
  const std::vector<TextSegment> forged = {{"<|begin_of_text|>", false}, {"Hi", false}};
  const auto count = [&](const std::vector<TextSegment>& segments) {
    const auto ids = tokenizer->EncodeSegments(segments, true);
    REQUIRE(ids.ok());
    CHECK(ids->front() == bos);
    return std::count(ids->begin(), ids->end(), bos);
  };
  CHECK(count(begins) == 1);
  CHECK(count(plain) == 1);
  CHECK(count(forged) == 1);
  CHECK_FALSE(Load("qwen2")->adds_bos());
}

TEST_CASE("tokenizer_config.json's add_bos_token replaces the post-processor") {
  TokenizerConfig config;
  config.bos_token = "<s>";
  config.add_bos_token = true;
  auto parts = ParseTokenizerJson(Document().dump(), config);
  REQUIRE(parts.ok());
  CHECK(*Tokenizer(*std::move(parts)).Encode("ab", {}) == Ids{4, 2});
  config.add_bos_token = false;
  parts = ParseTokenizerJson(Document().dump(), config);
  REQUIRE(parts.ok());
  CHECK(*Tokenizer(*std::move(parts)).Encode("ab", {}) == Ids{2});
}

TEST_CASE("add_bos_token without a bos_token adds none; one that is named has to be there") {
  TokenizerConfig config;
  config.add_bos_token = config.add_eos_token = true;
  auto parts = ParseTokenizerJson(Document().dump(), config);
  INFO(parts.status().ToString());
  REQUIRE(parts.ok());
  CHECK(*Tokenizer(*std::move(parts)).Encode("ab", {}) == Ids{2});
  config.bos_token = "<nowhere>";
  CHECK_THAT(std::string(ParseTokenizerJson(Document().dump(), config).status().message()),
             Catch::Contains("add_bos_token or add_eos_token is true, but that token is not in"));
}

TEST_CASE("a stream never holds half a character, and invalid bytes become U+FFFD") {
  const auto tokenizer = Load("gpt2");
  const auto ids = tokenizer->Encode("\xF0\x90\x8D\x88", {});  // no merges: four bytes, four ids
  REQUIRE(ids.ok());
  REQUIRE(ids->size() == 4);
  IncrementalDecoder decoder(*tokenizer, true);
  for (int i = 0; i < 3; ++i) CHECK(decoder.Append((*ids)[i]).empty());
  CHECK(decoder.Append((*ids)[3]) == "\xF0\x90\x8D\x88");
  CHECK(decoder.Append((*ids)[0]).empty());
  CHECK(decoder.Flush() == "\uFFFD");
  CHECK(decoder.Append((*ids)[1]) == "\uFFFD");
  CHECK(decoder.Append(-1).empty());
  CHECK(decoder.Append(1 << 30).empty());
}

TEST_CASE("text that continues a prompt keeps its first space") {
  const auto tokenizer = Load("llama2");
  const auto ids = tokenizer->Encode("world", {.add_special_tokens = false});
  REQUIRE(ids.ok());
  const auto decode = [&](bool continues) {
    IncrementalDecoder decoder(*tokenizer, true, continues);
    std::string text;
    for (const int32_t id : *ids) text += decoder.Append(id);
    return text + decoder.Flush();
  };
  CHECK(decode(false) == "world");
  CHECK(decode(true) == " world");
}

TEST_CASE("the bytes and the text of single ids") {
  const auto bytes = Load("gpt2");
  const auto space_t = bytes->TokenId("\u0120t");
  REQUIRE(space_t.has_value());
  CHECK(bytes->TokenBytes(*space_t) == " t");
  CHECK(bytes->TokenText(*space_t) == "\u0120t");
  CHECK(bytes->TokenBytes(-1).empty());
  CHECK(bytes->TokenBytes(bytes->vocabulary_size()).empty());
  CHECK_FALSE(bytes->TokenId("no such token").has_value());
  const auto pieces = Load("llama2");
  CHECK(pieces->TokenBytes(*pieces->TokenId("<0xE2>")) == "\xE2");
  CHECK(pieces->TokenBytes(*pieces->TokenId("\u2581")) == " ");
}

TEST_CASE("one tokenizer serves many threads") {
  const auto tokenizer = Load("qwen2");
  const std::string text = "It's 12 na\u0131\u0308ve caf\u00e9s, 天地玄黄 <|im_end|>\n\n  x";
  const Ids want = *tokenizer->Encode(text, {});
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) wrong[t] += *tokenizer->Encode(text, {}) != want;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("a long hostile text takes no time that grows with its square") {
  const auto tokenizer = Load("qwen2");
  std::string marks = "e";
  while (marks.size() < (1 << 20)) marks += "\u0301\u0316";
  for (const std::string& text : {marks, std::string(1 << 20, 'a'), std::string(1 << 20, ' ')}) {
    const auto ids = tokenizer->Encode(text, {});
    REQUIRE(ids.ok());
    CHECK_FALSE(ids->empty());
  }
}

TEST_CASE("how few tokens a text can become is known without encoding it") {
  size_t bounded = 0;
  for (const auto& family : std::filesystem::directory_iterator(kGolden)) {
    if (!family.is_directory()) continue;
    INFO(family.path());
    const auto tokenizer = Tokenizer::Load(family.path());
    if (!tokenizer.ok()) continue;
    const std::string letters(100'000, 'a');
    bounded += (*tokenizer)->MinTokens(letters) > 0;
    // Never more than there are, whatever the longest token, fused letters or swallowed spaces.
    std::vector<std::string> texts = {letters, std::string(5000, ' '), "", "a b\tc\n\n d"};
    std::string angstroms, letters_of_hangul, unknown, repeated;
    for (int i = 0; i < 500; ++i) {
      angstroms += "A\xCC\x8A";
      letters_of_hangul += "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB";
      unknown += "\xF0\x93\x80\x80";
    }
    texts.insert(texts.end(), {angstroms, letters_of_hangul, unknown});
    for (int32_t id = 0; id < (*tokenizer)->vocabulary_size(); ++id) {
      const std::string token = (*tokenizer)->TokenBytes(id);
      if (token.size() < 12 || FindInvalidUtf8(token) != std::string::npos) continue;
      repeated.clear();
      for (int i = 0; i < 50; ++i) repeated += token;
      texts.push_back(repeated);
      if (texts.size() > 300) break;
    }
    for (const std::string& text : texts) {
      const auto ids = (*tokenizer)->Encode(text, {.add_special_tokens = false});
      REQUIRE(ids.ok());
      CHECK((*tokenizer)->MinTokens(text) <= static_cast<int64_t>(ids->size()));
    }
  }
  CHECK(bounded >= 3);
}

TEST_CASE("where text is dropped or joined, nothing is known of how few tokens it becomes") {
  const auto min_tokens = [](const json& document) {
    auto parts = ParseTokenizerJson(document.dump(), {});
    INFO(parts.status().ToString());
    REQUIRE(parts.ok());
    return Tokenizer(*std::move(parts))
        .MinTokens(std::string(10'000, 'a') + std::string(10'000, ' '));
  };
  // Characters instead of bytes; those that the vocabulary lacks are dropped, fused or one each.
  json characters = Document();
  characters.erase("pre_tokenizer");
  characters["decoder"] = nullptr;
  CHECK(min_tokens(characters) == 0);
  characters["model"]["unk_token"] = "c";
  CHECK(min_tokens(characters) == 20'000 / 4);
  json fused = characters;
  fused["model"]["fuse_unk"] = true;
  CHECK(min_tokens(fused) == 0);
  const auto with = [&characters](const char* pointer, const json& value) {
    json document = characters;
    document[json::json_pointer(pointer)] = value;
    return document;
  };
  CHECK(min_tokens(with("/normalizer", {{"type", "NFC"}})) == 20'000 / 16);
  CHECK(min_tokens(with("/normalizer", {{"type", "Prepend"}, {"prepend", "_"}})) == 20'000 / 4);
  for (const json& deletes :
       {json{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}},
        json{{"type", "Replace"}, {"pattern", {{"String", "aa"}}}, {"content", "a"}},
        json{{"type", "Replace"}, {"pattern", {{"Regex", " +"}}}, {"content", "long enough"}},
        json{{"type", "StripAccents"}}}) {
    CHECK(min_tokens(with("/normalizer", deletes)) == 0);
    const json sequence = {{"type", "Sequence"},
                           {"normalizers", json::array({{{"type", "NFC"}}, deletes})}};
    CHECK(min_tokens(with("/normalizer", sequence)) == 0);
  }
  CHECK(min_tokens(with("/pre_tokenizer", {{"type", "WhitespaceSplit"}})) == 0);
  // A token that swallows the spaces beside it: they count as nothing.
  json swallows = characters;
  swallows["added_tokens"][0]["lstrip"] = true;
  CHECK(min_tokens(swallows) == 10'000 / 4);
  // The longest token decides.
  json longer = characters;
  longer["added_tokens"][0]["content"] = "<|begin|>";
  CHECK(min_tokens(longer) == 20'000 / 9);
}
