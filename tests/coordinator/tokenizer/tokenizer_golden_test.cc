// Every family of tests/golden/tokenizer, token for token against what Hugging Face recorded.

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coordinator/tokenizer/incremental_decoder.h"
#include "coordinator/tokenizer/sentencepiece_tokenizer.h"
#include "coordinator/tokenizer/text/utf8.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "coordinator/tokenizer/tokenizer_config.h"
#include "coordinator/tokenizer/tokenizer_json.h"

namespace {

using nlohmann::json;
using tessera::coordinator::FindInvalidUtf8;
using tessera::coordinator::IncrementalDecoder;
using tessera::coordinator::ParseSentencePiece;
using tessera::coordinator::ParseTokenizerJson;
using tessera::coordinator::TextSegment;
using tessera::coordinator::Tokenizer;
using tessera::coordinator::TokenizerConfig;
using tessera::coordinator::TokenizerParts;
using Ids = std::vector<int32_t>;

const std::filesystem::path kGolden = "tests/golden/tokenizer";

json Read(const std::filesystem::path& path) {
  std::ifstream file(path);
  REQUIRE(file);
  return json::parse(file);
}

std::unique_ptr<Tokenizer> Load(const std::string& family) {
  auto tokenizer = Tokenizer::Load(kGolden / family);
  INFO(tokenizer.status().ToString());
  REQUIRE(tokenizer.ok());
  return *std::move(tokenizer);
}

Ids Join(Ids prefix, const Ids& middle, const Ids& suffix) {
  prefix.insert(prefix.end(), middle.begin(), middle.end());
  prefix.insert(prefix.end(), suffix.begin(), suffix.end());
  return prefix;
}

// The text of ids decoded one by one; every part must be whole characters.
std::string DecodeOneByOne(const Tokenizer& tokenizer, const Ids& ids, bool skip) {
  IncrementalDecoder decoder(tokenizer, skip);
  std::string text;
  for (const int32_t id : ids) {
    const std::string part = decoder.Append(id);
    CHECK(FindInvalidUtf8(part) == std::string::npos);
    text += part;
  }
  return text + decoder.Flush();
}

void CheckDecode(const Tokenizer& tokenizer, const Ids& ids, bool skip, const std::string& text) {
  CHECK(tokenizer.Decode(ids, skip) == text);
  CHECK(DecodeOneByOne(tokenizer, ids, skip) == text);
}

void CheckCases(const Tokenizer& tokenizer, const json& texts, const json& expected, bool fast) {
  REQUIRE(texts.size() == expected["cases"].size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const json& one = expected["cases"][i];
    const std::string text = texts[i];
    const Ids want = one["ids"];
    INFO("text " << i << ": " << texts[i]);
    const auto ids = tokenizer.Encode(text, {});
    REQUIRE(ids.ok());
    CHECK(*ids == want);
    const auto split =
        tokenizer.Encode(text, {.add_special_tokens = false, .parse_special_tokens = false});
    REQUIRE(split.ok());
    if (one.contains("split")) {
      CHECK(*split == one["split"].get<Ids>());
    } else {
      CHECK(Join(expected["prefix"], *split, expected["suffix"]) == want);
    }
    if (fast) {
      CheckDecode(tokenizer, want, false, one.value("text", text));
      CheckDecode(tokenizer, want, true, one.value("skip", text));
    } else if (one["round_trip"].get<bool>()) {
      CheckDecode(tokenizer, *split, true, text);
    }
  }
}

void CheckSegments(const Tokenizer& tokenizer, const json& expected) {
  for (const json& one : expected["segments"]) {
    INFO(one.dump());
    std::vector<TextSegment> segments;
    for (const json& segment : one["segments"]) segments.push_back({segment[0], segment[1]});
    const auto ids = tokenizer.EncodeSegments(segments, false);
    REQUIRE(ids.ok());
    CHECK(*ids == one["ids"].get<Ids>());
  }
}

// Byte tokens that are no text: Hugging Face makes the whole run U+FFFD, we keep what is text in
// it.
bool HasInvalidBytes(const json& decoded) {
  return decoded["text"].get<std::string>().find("\xEF\xBF\xBD") != std::string::npos;
}

void CheckFamily(const std::string& family, bool fast) {
  const auto tokenizer = Load(family);
  const json expected = Read(kGolden / family / "expected.json");
  CheckCases(*tokenizer, Read(kGolden / "texts.json"), expected, fast);
  CheckSegments(*tokenizer, expected);
  const bool byte_fallback = tokenizer->TokenId("<0x0A>").has_value();
  for (const json& one : expected["decodes"]) {
    INFO(one.dump());
    const Ids ids = one["ids"];
    if (byte_fallback && HasInvalidBytes(one)) {
      CHECK(DecodeOneByOne(*tokenizer, ids, false) == tokenizer->Decode(ids, false));
      continue;
    }
    CheckDecode(*tokenizer, ids, false, one["text"]);
    CheckDecode(*tokenizer, ids, true, one["skip"]);
  }
}

std::string ReadBytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The folder's tokenizer with one more token, as added.json's entry describes it.
std::unique_ptr<Tokenizer> WithToken(const json& entry) {
  const std::filesystem::path folder = kGolden / entry["folder"].get<std::string>();
  const json& flags = entry["flags"];
  absl::StatusOr<TokenizerParts> parts;
  if (entry.contains("legacy")) {
    TokenizerConfig config;
    config.tokenizer_class = "LlamaTokenizer";
    config.legacy = entry["legacy"].get<bool>();
    const int32_t id = entry["id"];
    config.added_tokens[id] = {.content = "<tool>",
                               .id = id,
                               .special = flags["special"],
                               .normalized = flags["normalized"],
                               .lstrip = flags["lstrip"],
                               .rstrip = flags["rstrip"]};
    parts = ParseSentencePiece(ReadBytes(folder / "tokenizer.model"), "tokenizer.model", config);
  } else {
    json document = Read(folder / "tokenizer.json");
    json token = flags;
    int32_t id = static_cast<int32_t>(document["model"]["vocab"].size());
    for (const json& known : document["added_tokens"]) {
      id = std::max(id, known["id"].get<int32_t>() + 1);
    }
    token.update({{"id", id}, {"content", "<tool>"}, {"single_word", false}});
    document["added_tokens"].push_back(token);
    parts = ParseTokenizerJson(document.dump(), {});
  }
  REQUIRE(parts.ok());
  return std::make_unique<Tokenizer>(*std::move(parts));
}

TEST_CASE("an added token and the spaces around it, by its flags") {
  const json entries = Read(kGolden / "added.json");
  REQUIRE(entries.size() == 63);
  for (const json& entry : entries) {
    const auto tokenizer = WithToken(entry);
    for (const json& one : entry["cases"]) {
      INFO(entry["folder"] << " " << entry["flags"] << " legacy " << entry.value("legacy", json())
                           << ": " << one["text"]);
      const auto ids =
          tokenizer->Encode(one["text"].get<std::string>(), {.add_special_tokens = false});
      REQUIRE(ids.ok());
      CHECK(*ids == one["ids"].get<Ids>());
      if (one.contains("decoded")) CheckDecode(*tokenizer, one["ids"], false, one["decoded"]);
    }
  }
}

}  // namespace

TEST_CASE("every family of tokenizer.json equals Hugging Face") {
  const auto family =
      GENERATE(as<std::string>{}, "gpt2", "roberta", "opt", "llama3", "qwen2", "tekken",
               "starcoder", "deepseek", "llama2", "llama_normalized", "mistral", "gemma",
               "metaspace", "flags", "unigram", "unigram_bytes");
  INFO(family);
  CheckFamily(family, true);
}

TEST_CASE("tokenizer.model equals transformers' LlamaTokenizer") {
  const auto family = GENERATE(as<std::string>{}, "model_bpe", "model_bpe_later", "model_unigram");
  INFO(family);
  CheckFamily(family, false);
}
