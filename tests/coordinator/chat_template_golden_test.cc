// Our renderer against Python's jinja2: the files that tests/golden/chat_template/make_golden.py
// wrote.

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "coordinator/jinja/chat_template.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;

const std::string kFolder = "tests/golden/chat_template/";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::StatusOr<std::string> RenderText(const std::string& source, const Json& context,
                                       int64_t now) {
  const absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) {
    return parsed.status();
  }
  const auto segments = parsed->RenderOrdered(context, now);
  if (!segments.ok()) {
    return segments.status();
  }
  std::string text;
  for (const TextSegment& segment : *segments) {
    text += segment.text;
  }
  return text;
}

// `expected` holds "output", or "error": "raised" with a message, or "error": "other".
void CheckOutcome(const std::string& source, const Json& context, int64_t now,
                  const Json& expected) {
  const absl::StatusOr<std::string> got = RenderText(source, context, now);
  if (expected.contains("output")) {
    REQUIRE(got.status().ToString() == "OK");
    CHECK(*got == expected["output"].get<std::string>());
    return;
  }
  REQUIRE_FALSE(got.ok());
  CHECK(got.status().code() == absl::StatusCode::kInvalidArgument);
  const std::string message(got.status().message());
  CHECK(message.find("chat template line ") != std::string::npos);
  if (expected["error"] == "raised") {
    CHECK(message.find(expected["message"].get<std::string>()) == 0);
  }
}

TEST_CASE("templates render as jinja2 renders them, byte for byte") {
  const Json golden = Json::parse(ReadFile(kFolder + "templates.json"));
  REQUIRE(golden["templates"].size() >= 8);
  for (const Json& entry : golden["templates"]) {
    const std::string name = entry["template"];
    const std::string source = ReadFile(kFolder + "templates/" + name);
    for (const auto& [context, expected] : entry["results"].items()) {
      INFO(name << " with the conversation \"" << context << "\"");
      CheckOutcome(source, golden["contexts"][context], golden["now"], expected);
    }
  }
}

TEST_CASE("expressions and statements render as jinja2 renders them") {
  const Json golden = Json::parse(ReadFile(kFolder + "expressions.json"));
  REQUIRE(golden["cases"].size() >= 300);
  for (const Json& entry : golden["cases"]) {
    const std::string source = entry["source"];
    INFO(source);
    CheckOutcome(source, golden["context"], golden["now"], entry);
  }
}

}  // namespace
}  // namespace tessera::coordinator
