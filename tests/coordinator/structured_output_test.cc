// The fields that give an answer a form: what the workers are asked, and what is refused by name.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch_skip.h"
#include "tests/coordinator/door.h"
#include "tests/coordinator/grammar/grammar_probe.h"
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
    for (const char* type : {"json_object", "json_schema"}) {
      CHECK(GrammarOf(door, path, {{"response_format", {{"type", type}, {"schema", schema}}}}) ==
            held);
    }
    // A schema that says nothing leaves the type's own form: an object.
    for (const Ordered& nothing : {Ordered::object(), Ordered(true)}) {
      const Ordered empty = {{"type", "json_object"}, {"schema", nothing}};
      CHECK(GrammarOf(door, path, {{"response_format", empty}}) == object);
    }
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
      {{{"guided_json", "{\"type\": "}}, "guided_json", "guided_json: parse error"},
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
  const Ordered wrapped = {{"type", "json_schema"},
                           {"json_schema", {{"schema", schema}, {"strict", false}}}};
  Ordered bare = {{"type", "json_schema"}, {"schema", schema}, {"strict", false}};
  for (const Ordered& format : {wrapped, bare}) {
    CAPTURE(format);
    const HttpReply reply = door.Post(kChat, Body(kChat, {{"response_format", format}}).dump());
    CHECK(reply.status == 200);
    CHECK_THAT(reply.head, Contains("x-tessera-not-enforced: response_format"));
    CHECK_FALSE(door.service.last_request().grammar.empty());
  }
  for (const Ordered& strict : {Ordered(true), Ordered(1)}) {
    bare["strict"] = strict;
    const json body = json::parse(Body(kChat, {{"response_format", bare}}).dump());
    CHECK_THAT(door.Error(kChat, body), StartsWith("400 response_format "));
  }
}

TEST_CASE("where the model thinks, the form begins behind it") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Door plain, thinks({}, {}, ToolModel());
  const Ordered fields = {{"guided_choice", {"yes"}}};
  CHECK(GrammarOf(plain, kChat, fields) == "root ::= \"yes\"\n");
  CHECK_THAT(GrammarOf(thinks, kChat, fields), Contains("<think>"));
  CHECK(GrammarOf(thinks, kCompletions, fields) == "root ::= \"yes\"\n");
}

Ordered Tool(const char* name, const Ordered& parameters, const Ordered& strict) {
  return {{"type", "function"},
          {"function", {{"name", name}, {"parameters", parameters}, {"strict", strict}}}};
}

// A chat with two tools: the clock is strict.
Ordered WithTools(const Ordered& fields) {
  const Ordered place = Ordered::parse(
      R"({"type":"object","properties":{"city":{"enum":["Rom","Ulm"]},"days":{"type":"array",
          "uniqueItems":true,"items":{"type":"integer"}}},"required":["city"]})");
  const Ordered zone = Ordered::parse(
      R"({"type":"object","properties":{"zone":{"type":"integer"}},"required":["zone"],
          "additionalProperties":false})");
  Ordered body = fields;
  body["tools"] = Ordered::array({Tool("weather", place, false), Tool("clock", zone, true)});
  return body;
}

TEST_CASE("a call that is demanded has arguments of its function's schema") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Door door({}, {}, ToolModel());
  const auto probe = [&](const Ordered& fields) {
    auto made = tests::GrammarProbe::Create(GrammarOf(door, kChat, fields));
    REQUIRE(made.ok());
    return *std::move(made);
  };
  const Ordered named = {{"type", "function"}, {"function", {{"name", "weather"}}}};
  const tests::GrammarProbe weather = probe(WithTools({{"tool_choice", named}}));
  CHECK(weather.Accepts(" {\"city\": \"Rom\"}}\n</tool_call>"));
  CHECK(weather.Accepts("{\"city\":\"Ulm\",\"days\":[1,1]}}\n</tool_call>"));  // not strict
  CHECK_FALSE(weather.Accepts(" {\"city\": \"Paris\"}}\n</tool_call>"));
  CHECK_FALSE(weather.Accepts(" {\"city\": \"Rom\"}"));
  const tests::GrammarProbe any = probe(WithTools({{"tool_choice", "required"}}));
  CHECK(any.Accepts("weather\", \"arguments\": {\"city\": \"Rom\"}}\n</tool_call>"));
  CHECK(any.Accepts("clock\", \"arguments\": {\"zone\": 3}}\n</tool_call>"));
  CHECK_FALSE(any.Accepts("clock\", \"arguments\": {\"city\": \"Rom\"}}\n</tool_call>"));
  CHECK_FALSE(any.Accepts("other\", \"arguments\": {}}\n</tool_call>"));

  Ordered strict = WithTools({{"tool_choice", "required"}});
  const HttpReply held = door.Post(kChat, Body(kChat, strict).dump());
  CHECK(held.head.find("x-tessera-not-enforced") == std::string::npos);
  strict["tools"][0]["function"]["strict"] = true;
  const std::string error = door.Error(kChat, json::parse(Body(kChat, strict).dump()));
  CHECK_THAT(error, StartsWith("400 tools tools[0].function.parameters: "));
  CHECK_THAT(error, Contains("$.days: uniqueItems"));
  // Functions that are not strict are never a reason to refuse, nor to hold a free answer.
  for (Ordered& tool : strict["tools"]) tool["function"]["strict"] = false;
  strict["tool_choice"] = "auto";
  CHECK(door.Post(kChat, Body(kChat, strict).dump()).status == 200);
  CHECK(door.service.last_request().grammar.empty());
}

TEST_CASE("a strict function's calls are held in an answer that is free until one begins") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const auto accepts = [](const char* format, const Ordered& fields, const std::string& text) {
    auto model = std::make_shared<ServedModel>(*ToolModel());
    REQUIRE(FindAnswerFormats(format, *model).ok());
    Door door({}, {}, model);
    const HttpReply reply = door.Post(kChat, Body(kChat, WithTools(fields)).dump());
    INFO(reply.body);
    REQUIRE(reply.status == 200);
    CHECK(reply.head.find("x-tessera-not-enforced") == std::string::npos);
    auto probe = tests::GrammarProbe::Create(door.service.last_request().grammar);
    REQUIRE(probe.ok());
    return probe->Accepts(text);
  };
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments +
           "}\n</tool_call>";
  };
  const std::string good = call("clock", "{\"zone\": 3}");
  const Ordered free = Ordered::object();
  for (const std::string& text :
       {std::string(), std::string("Just <tool text.\n"), good, "I look.\n" + good,
        good + "\n" + call("weather", "{\"city\": \"Rom\", \"days\": [1, 1]}"),
        "<think>\nhm\n</think>\n\n" + good}) {
    INFO(text);
    CHECK(accepts("hermes", free, text));
  }
  for (const std::string& text :
       {call("clock", "{\"zone\": \"x\"}"), call("clock", "{\"zone\": 3, \"more\": 1}"),
        call("other", "{}"), "I look.\n" + call("clock", "{}"), good + "\n" + call("clock", "{}"),
        good + " and", good.substr(0, 30)}) {
    INFO(text);
    CHECK_FALSE(accepts("hermes", free, text));
  }
  const Ordered one = {{"parallel_tool_calls", false}};
  CHECK(accepts("hermes", one, good));
  CHECK_FALSE(accepts("hermes", one, good + "\n" + good));
  // Other formats: the call's text, with good arguments and with bad ones.
  const std::vector<std::pair<const char*, std::string>> formats = {
      {"mistral", "[TOOL_CALLS]clock[ARGS]%"},
      {"mistral_v3", "[TOOL_CALLS][{\"name\": \"clock\", \"arguments\": %}]"},
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n%\n```"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {"deepseek_v31",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>clock<｜tool▁sep｜>%<｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>"},
      {"granite", "<|tool_call|>[{\"name\": \"clock\", \"arguments\": %}]"},
      {"phi4_mini_json", "functools[{\"name\": \"clock\", \"arguments\": %}]"},
      {"nemotron", "<TOOLCALL>[{\"name\": \"clock\", \"arguments\": %}]</TOOLCALL>"},
      {"jamba", "<tool_calls>[{\"name\": \"clock\", \"arguments\": %}]</tool_calls>"},
      {"command",
       "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"clock\", "
       "\"parameters\": %}\n]<|END_ACTION|>"}};
  for (const auto& [format, text] : formats) {
    CAPTURE(format);
    const size_t at = text.find('%');
    const auto with = [&, shape = text](const std::string& arguments) {
      return std::string(shape).replace(at, 1, arguments);
    };
    CHECK(accepts(format, free, "So: " + with("{\"zone\": 3}")));
    CHECK(accepts(format, free, "Nothing to call."));
    CHECK_FALSE(accepts(format, free, "So: " + with("{\"zone\": \"x\"}")));
  }
}

TEST_CASE("with tools a form may give way to a call, and a call that is demanded wins") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Door door({}, {}, ToolModel());
  const Ordered form = {{"guided_choice", {"yes"}}};
  const auto both = tests::GrammarProbe::Create(GrammarOf(door, kChat, WithTools(form)));
  REQUIRE(both.ok());
  CHECK(both->Accepts("yes"));
  // Calls are whole ones, with the arguments of strict functions; others have any.
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments +
           "}\n</tool_call>";
  };
  const std::string good = call("clock", "{\"zone\": 3}");
  for (const std::string& text :
       {good, call("weather", "{\"more\": [1]}"), good + "\n" + call("weather", "{}"),
        "<think>\nhm\n</think>\n\n" + good}) {
    INFO(text);
    CHECK(both->Accepts(text));
  }
  for (const std::string& text :
       {std::string("no"), std::string("<tool_call>"), "<tool_call> el" + good, call("clock", "{}"),
        call("other", "{}"), good + "yes", good.substr(0, 40)}) {
    INFO(text);
    CHECK_FALSE(both->Accepts(text));
  }
  const HttpReply reply = door.Post(kChat, Body(kChat, WithTools(form)).dump());
  CHECK(reply.head.find("x-tessera-not-enforced") == std::string::npos);
  Ordered demanded = WithTools(form);
  demanded["tool_choice"] = "required";
  CHECK(GrammarOf(door, kChat, demanded) ==
        GrammarOf(door, kChat, WithTools({{"tool_choice", "required"}})));
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
