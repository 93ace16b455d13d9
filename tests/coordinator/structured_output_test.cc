// The fields that give an answer a form: what the workers are asked, and what is refused by name.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch_skip.h"
#include "tests/coordinator/door.h"
#include "third_party/xgrammar/token_grammar.h"

namespace tessera::coordinator {
namespace {

using nlohmann::json;
using Ordered = nlohmann::ordered_json;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kCompletions[] = "/v1/completions";

Ordered Body(const char* path, const Ordered& fields) {
  Ordered body = fields;
  if (path == kChat) {
    body["messages"] = Ordered::array({{{"role", "user"}, {"content", "x"}}});
  } else {
    body["prompt"] = "x";
  }
  return body;
}

// The grammar that a request with these fields gives its generation.
std::string GrammarOf(Door& door, const char* path, const Ordered& fields) {
  const HttpReply reply = door.Post(path, Body(path, fields).dump());
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  return door.service.last_request().grammar;
}

TEST_CASE("each form becomes a grammar, in chats and completions") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Door door;
  const Ordered schema = Ordered::parse(
      R"({"type":"object","properties":{"zeta":{"type":"integer"},"alpha":{"type":"string"}},
          "required":["zeta","alpha"]})");
  const Ordered format = {{"type", "json_schema"},
                          {"json_schema", {{"name", "x"}, {"schema", schema}, {"strict", true}}}};
  for (const char* path : {kChat, kCompletions}) {
    CAPTURE(path);
    CHECK(GrammarOf(door, path, {}).empty());
    CHECK(GrammarOf(door, path, {{"response_format", {{"type", "text"}}}}).empty());
    CHECK(GrammarOf(door, path, {{"structured_outputs", Ordered::object()}}).empty());
    const std::string held = GrammarOf(door, path, {{"response_format", format}});
    CHECK_THAT(held, StartsWith("root ::= "));
    // In the declared order: who is behind is written first.
    CHECK(held.find("alpha") < held.find("zeta"));
    CHECK(GrammarOf(door, path, {{"guided_json", schema}}) == held);
    CHECK(GrammarOf(door, path, {{"guided_json", schema.dump()}}) == held);
    CHECK(GrammarOf(door, path, {{"structured_outputs", {{"json", schema}}}}) == held);
    const std::string object =
        GrammarOf(door, path, {{"response_format", {{"type", "json_object"}}}});
    CHECK(object != held);
    CHECK(GrammarOf(door, path, {{"structured_outputs", {{"json_object", true}}}}) == object);
    CHECK(GrammarOf(door, path, {{"guided_choice", {"yes", "n\"o"}}}) ==
          "root ::= \"yes\" | \"n\\\"o\"\n");
    CHECK_THAT(GrammarOf(door, path, {{"guided_regex", "[ab]{2}"}}), Contains("[a-b]"));
    CHECK(GrammarOf(door, path, {{"guided_grammar", "root ::= \"a\""}}) == "root ::= \"a\"");
  }
}

TEST_CASE("a form that cannot be held is refused by field, keyword and place") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Door door;
  const auto format = [](const json& schema, const json& strict) {
    return json{{"type", "json_schema"},
                {"json_schema", {{"name", "x"}, {"schema", schema}, {"strict", strict}}}};
  };
  const json unique = {{"properties", {{"a", {{"type", "array"}, {"uniqueItems", true}}}}}};
  const std::tuple<json, const char*, const char*> cases[] = {
      {{{"response_format", format(unique, true)}}, "response_format", "$.a: uniqueItems"},
      {{{"response_format", format(unique, nullptr)}}, "response_format", "$.a: uniqueItems"},
      {{{"response_format", format(5, true)}}, "response_format", "an object is expected"},
      {{{"guided_json", unique}}, "guided_json", "uniqueItems is not enforced"},
      {{{"guided_json", "{\"type\": "}}, "guided_json", "guided_json"},
      {{{"guided_regex", "(?=a)"}}, "guided_regex", "lookaround"},
      {{{"guided_choice", json::array()}}, "guided_choice", "at least one choice"},
      {{{"structured_outputs", {{"structural_tag", "x"}}}},
       "structured_outputs",
       "structured_outputs.structural_tag: not supported yet"},
      {{{"guided_regex", "a"}, {"guided_choice", {"a"}}},
       "guided_choice",
       "not together with guided_regex"},
      {{{"guided_regex", "a"}, {"response_format", {{"type", "json_object"}}}},
       "guided_regex",
       "not together with response_format"},
  };
  for (const auto& [fields, field, text] : cases) {
    CAPTURE(fields);
    for (const char* path : {kChat, kCompletions}) {
      const json body = json::parse(Body(path, Ordered::parse(fields.dump())).dump());
      const std::string error = door.Error(path, body);
      CHECK_THAT(error, StartsWith(std::string("400 ") + field + " "));
      CHECK_THAT(error, Contains(text));
    }
  }
  CHECK(door.service.requests().empty());
}

TEST_CASE("with strict: false what cannot be held is left out, and the answer says so") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Door door;
  const Ordered schema = {{"type", "array"}, {"uniqueItems", true}};
  const Ordered format = {{"type", "json_schema"},
                          {"json_schema", {{"schema", schema}, {"strict", false}}}};
  const HttpReply reply = door.Post(kChat, Body(kChat, {{"response_format", format}}).dump());
  CHECK(reply.status == 200);
  CHECK_THAT(reply.head, Contains("x-tessera-not-enforced: response_format"));
  CHECK_FALSE(door.service.last_request().grammar.empty());
}

TEST_CASE("where the model thinks, the form begins behind it") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Door plain, thinks({}, {}, ToolModel());
  const Ordered fields = {{"guided_choice", {"yes"}}};
  CHECK(GrammarOf(plain, kChat, fields) == "root ::= \"yes\"\n");
  CHECK_THAT(GrammarOf(thinks, kChat, fields), Contains("<think>"));
  CHECK(GrammarOf(thinks, kCompletions, fields) == "root ::= \"yes\"\n");
}

TEST_CASE("a build without grammars refuses each form by name") {
  if (HasTokenGrammars()) return;
  Door door;
  for (const char* field : {"guided_json", "guided_regex", "guided_choice", "guided_grammar"}) {
    const json value = field == std::string("guided_json")     ? json{{"type", "integer"}}
                       : field == std::string("guided_choice") ? json{"a"}
                                                               : json("root ::= \"a\"");
    const std::string error = door.Error(kCompletions, {{"prompt", "x"}, {field, value}});
    CHECK_THAT(error, StartsWith(std::string("400 ") + field + " "));
    CHECK_THAT(error, Contains("deploy/install_xgrammar"));
  }
}

}  // namespace
}  // namespace tessera::coordinator
