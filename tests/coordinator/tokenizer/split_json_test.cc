// One reading of a body gives two documents.

#include "coordinator/tokenizer/text/split_json.h"

#include <catch2/catch.hpp>
#include <string>

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;
using Catch::Matchers::Contains;

absl::StatusOr<SplitJson> Split(const std::string& text, const JsonLimits& limits = {}) {
  return ParseSplit(text, "the body", limits, {"messages", "text"});
}

}  // namespace

TEST_CASE("named members keep their order, and all are found fast") {
  const std::string text = R"({"z": {"b": 1, "a": [2, {"messages": 3}]}, "text": "hi",
      "messages": [{"role": "user", "at": {"y": -1, "x": [0.5, null, true]}}, []],
      "n": 18446744073709551615})";
  const auto split = Split(text);
  REQUIRE(split.ok());
  CHECK(split->ordered.dump() ==
        R"({"text":"hi","messages":[{"role":"user","at":{"y":-1,"x":[0.5,null,true]}},[]]})");
  CHECK(split->all == Json::parse(text));
  // The last of two equal names counts, as in the library's own reader.
  const std::string twice = R"({"messages": [1], "n": [1], "messages": {"a": 2}, "n": {"b": 3}})";
  REQUIRE(Split(twice).ok());
  CHECK(Split(twice)->ordered == Ordered::parse(R"({"messages": {"a": 2}})"));
  CHECK(Split(twice)->all == Json::parse(twice));
}

TEST_CASE("what is no object, or too much of one, is refused") {
  for (const char* text : {"[1, [2]]", "5", "null", "\"x\""}) {
    CHECK(absl::IsInvalidArgument(Split(text).status()));
    CHECK(Split(text).status().message() == "the body must be a JSON object");
  }
  for (const char* text :
       {"", "{", "{\"a\" 1}", "{\"messages\": [1,]}", "{} x", "{\"a\": \"\xff\"}"}) {
    INFO(text);
    CHECK(Split(text).status() == ParseJson(text, "the body").status());
    CHECK(absl::IsInvalidArgument(Split(text).status()));
  }
  CHECK_THAT(std::string(Split("[[[]]]", {.containers = 2}).status().message()),
             Contains("3 objects and arrays"));
  CHECK_THAT(std::string(Split(std::string(65, '[')).status().message()), Contains("64 levels"));
  Json many = Json::object();
  for (int i = 0; i <= kMaxOrderedMembers; ++i) many[std::to_string(i)] = 0;
  CHECK(Split(Json{{"n", many}}.dump()).ok());
  CHECK(absl::IsOutOfRange(Split(Json{{"messages", {{"a", many}}}}.dump()).status()));
  many.erase("0");
  const auto most = Split(Json{{"messages", {{"a", many}}}}.dump());
  REQUIRE(most.ok());
  CHECK(most->ordered["messages"]["a"].size() == kMaxOrderedMembers);
}

}  // namespace tessera::coordinator
