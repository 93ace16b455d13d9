// Cutting and replacing at patterns, against the files that tests/golden/tokenizer/make_splits.py
// wrote.

#include "coordinator/tokenizer/text/pre_tokenizer.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coordinator/tokenizer/normalizer.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;

Json Golden() {
  std::ifstream file("tests/golden/tokenizer/splits.json", std::ios::binary);
  Json golden = Json::parse(file);
  REQUIRE(golden["splits"].size() == 150);
  return golden;
}

TEST_CASE("a pattern cuts a text where tokenizers cuts it, also where it matches a mere place") {
  const Json golden = Golden();
  for (const Json& one : golden["splits"]) {
    const auto split = PreTokenizer::FromJson({{"type", "Split"},
                                               {"pattern", {{"Regex", one["pattern"]}}},
                                               {"behavior", one["behavior"]},
                                               {"invert", one["invert"]}});
    REQUIRE(split.ok());
    for (size_t i = 0; i < golden["texts"].size(); ++i) {
      const std::string text = golden["texts"][i];
      Words words;
      REQUIRE(split->Split(text, true, &words).ok());
      INFO(one["pattern"] << " " << one["behavior"] << " " << one["invert"] << ": " << text);
      CHECK(std::vector<std::string>(words.views.begin(), words.views.end()) ==
            one["words"][i].get<std::vector<std::string>>());
    }
  }
}

TEST_CASE("a pattern is replaced where tokenizers replaces it, also in a mere place") {
  const Json golden = Golden();
  for (const Json& one : golden["replaced"]) {
    const auto replace = Normalizer::FromJson(
        {{"type", "Replace"}, {"pattern", {{"Regex", one["pattern"]}}}, {"content", "_"}});
    REQUIRE(replace.ok());
    for (size_t i = 0; i < one["texts"].size(); ++i) {
      const std::string text = i < golden["texts"].size() ? golden["texts"][i] : Json("");
      MarkedText input{text, SpecialTokens::kEverywhere, ""};
      REQUIRE(replace->Apply(&input).ok());
      INFO(one["pattern"] << ": " << text);
      CHECK(input.text == one["texts"][i].get<std::string>());
    }
  }
}

TEST_CASE("what is put between two characters is the client's where one of them is") {
  const auto replace = Normalizer::FromJson(
      {{"type", "Replace"}, {"pattern", {{"Regex", "(?:)"}}}, {"content", "_"}});
  REQUIRE(replace.ok());
  MarkedText input{"abcd", SpecialTokens::kInTemplate, std::string("\1\1\0\0", 4)};
  REQUIRE(replace->Apply(&input).ok());
  CHECK(input.text == "_a_b_c_d_");
  CHECK(input.mask == std::string("\1\1\1\1\0\0\0\0\0", 9));
}

}  // namespace
}  // namespace tessera::coordinator
