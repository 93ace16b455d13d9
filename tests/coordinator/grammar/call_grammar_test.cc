// Calls that are demanded, in the formats of each family: what its template writes is an answer of
// the grammar, and what a model of random weights writes is read as calls that fit their schemas.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/answer/call_formats.h"
#include "tests/catch_skip.h"
#include "tests/coordinator/grammar/call_probe.h"

namespace tessera::tests {
namespace {

using Json = nlohmann::ordered_json;

Json Tools() {
  return Json::parse(R"([
    {"type": "function", "function": {"name": "weather", "strict": true, "parameters": {
      "type": "object", "additionalProperties": false, "required": ["city", "days"],
      "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"enum": ["celsius", "kelvin"]},
        "exact": {"type": "boolean"},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"},
        "short": {"type": "string", "maxLength": 5},
        "tags": {"type": "array", "maxItems": 3, "items": {"$ref": "#/$defs/tag"}},
        "note": {"anyOf": [{"type": "string", "minLength": 2}, {"type": "null"}]}},
      "$defs": {"tag": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "weather_now", "strict": true,
      "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}}])");
}

CallProbe Probe(std::string_view format, const Json& tools = Tools()) {
  auto probe = CallProbe::Create(format, tools);
  INFO(probe.status().ToString());
  REQUIRE(probe.ok());
  return *std::move(probe);
}

// Two calls as the family's template writes them: a string with quotes, a line break and a
// character of several bytes, a number, a list.
const std::pair<const char*, const char*> kWritten[] = {
    {"qwen3_coder",
     "<tool_call>\n<function=weather>\n<parameter=city>\na \"b\"\n<i>ö</i>\n</parameter>\n"
     "<parameter=days>\n3\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n"
     "<parameter=tags>\n[\"x\", \"</parameter>\\n</function>\"]\n</parameter>\n</function>\n"
     "</tool_call>\n<tool_call>\n<function=weather_now>\n</function>\n</tool_call>"},
    {"seed_oss",
     "<seed:tool_call>\n<function=weather>\n<parameter=city>a \"b\"\n<i>ö</i></parameter>\n"
     "<parameter=days>3</parameter>\n<parameter=exact>true</parameter>\n"
     "<parameter=tags>[\"x\", \"</parameter>\\n</function>\"]</parameter>\n</function>\n"
     "</seed:tool_call>\n<seed:tool_call>\n<function=weather_now>\n</function>\n</seed:tool_call>"},
    {"minimax_m2",
     "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">a \"b\"\n<i>ö</i>"
     "</parameter>\n<parameter name=\"days\">3</parameter>\n<parameter name=\"exact\">true"
     "</parameter>\n<parameter name=\"tags\">[\"x\", \"</parameter>\\n</function>\"]</parameter>\n"
     "</invoke>\n<invoke name=\"weather_now\">\n</invoke>\n</minimax:tool_call>"},
    {"glm45",
     "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>a \"b\"\n<i>ö</i></arg_value>\n"
     "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>exact</arg_key>\n<arg_value>true"
     "</arg_value>\n<arg_key>tags</arg_key>\n<arg_value>[\"x\", \"</parameter>\\n</function>\"]"
     "</arg_value>\n</tool_call>\n<tool_call>weather_now\n</tool_call>"},
    {"glm47",
     "<tool_call>weather<arg_key>city</arg_key><arg_value>a \"b\"\n<i>ö</i></arg_value>"
     "<arg_key>days</arg_key><arg_value>3</arg_value><arg_key>exact</arg_key><arg_value>true"
     "</arg_value><arg_key>tags</arg_key><arg_value>[\"x\", \"</parameter>\\n</function>\"]"
     "</arg_value></tool_call><tool_call>weather_now</tool_call>"},
    {"deepseek_v32",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter "
     "name=\"city\" "
     "string=\"true\">a \"b\"\n<i>ö</i></｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
     "string=\"false\">3</｜DSML｜parameter>\n<｜DSML｜parameter name=\"exact\" "
     "string=\"false\">true"
     "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"tags\" string=\"false\">[\"x\", "
     "\"</parameter>\\n</function>\"]</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
     "<｜DSML｜invoke name=\"weather_now\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
    {"deepseek_v4",
     "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" "
     "string=\"true\">a \"b\"\n<i>ö</i></｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
     "string=\"false\">3</｜DSML｜parameter>\n<｜DSML｜parameter name=\"exact\" "
     "string=\"false\">true"
     "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"tags\" string=\"false\">[\"x\", "
     "\"</parameter>\\n</function>\"]</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
     "<｜DSML｜invoke name=\"weather_now\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"},
    {"kimi_k2",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
     "<|tool_call_argument_begin|>{\"city\": \"a \\\"b\\\"\\n<i>ö</i>\", \"days\": 3, \"exact\": "
     "true, \"tags\": [\"x\", \"</parameter>\\n</function>\"]}<|tool_call_end|><|tool_call_begin|>"
     "functions.weather_now:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>"},
};

TEST_CASE("what a family's template writes is an answer of the grammar, and is read as it was") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const Json arguments = {{"city", "a \"b\"\n<i>ö</i>"},
                          {"days", 3},
                          {"exact", true},
                          {"tags", {"x", "</parameter>\n</function>"}}};
  for (const auto& [format, written] : kWritten) {
    CAPTURE(format);
    const CallProbe probe = Probe(format);
    CHECK(probe.Accepts(written));
    const coordinator::AnswerMessage message = probe.Read(written);
    REQUIRE(message.calls.size() == 2);
    CHECK(message.calls[0].name == "weather");
    CHECK(Json::parse(message.calls[0].arguments) == arguments);
    CHECK(message.calls[1].name == "weather_now");
    CHECK(message.calls[1].arguments == "{}");
    CHECK(message.text.empty());
  }
}

TEST_CASE("values that the schema does not have are in no answer") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const CallProbe qwen = Probe("qwen3_coder");
  const std::string head = "<tool_call>\n<function=weather>\n<parameter=city>\nx\n</parameter>\n";
  const std::string days = "<parameter=days>\n3\n</parameter>\n";
  const std::string end = "</function>\n</tool_call>";
  const auto parameter = [](const std::string& name, const std::string& value) {
    return "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
  };
  CHECK(qwen.Accepts(head + days + end));
  CHECK_FALSE(qwen.Accepts(head + end));  // days is required
  CHECK_FALSE(qwen.Accepts(head + parameter("days", "12") + end));
  CHECK_FALSE(qwen.Accepts(head + parameter("days", "three") + end));
  CHECK_FALSE(qwen.Accepts(head + days + parameter("other", "1") + end));
  CHECK_FALSE(qwen.Accepts(head + days));
  CHECK(qwen.Accepts(head + days + parameter("unit", "kelvin") + end));
  CHECK_FALSE(qwen.Accepts(head + days + parameter("unit", "\"kelvin\"") + end));
  CHECK(qwen.Accepts(head + days + parameter("code", "AB-12") + end));
  CHECK_FALSE(qwen.Accepts(head + days + parameter("code", "ab") + end));
  CHECK(qwen.Accepts(head + days + parameter("short", "a<b>ö") + end));
  CHECK_FALSE(qwen.Accepts(head + days + parameter("short", "abcdef") + end));
  CHECK(qwen.Accepts(head + days + parameter("note", "<<b") + end));
  CHECK_FALSE(qwen.Accepts(head + days + parameter("note", "n") + end));
  CHECK(qwen.Accepts(head + days + parameter("tags", "[\"a\"]") + end));
  CHECK_FALSE(qwen.Accepts(head + days + parameter("tags", "[1]") + end));
  CHECK_FALSE(qwen.Accepts("<tool_call>\n<function=other>\n" + end));
  const CallProbe kimi = Probe("kimi_k2");
  const std::string call = "<|tool_calls_section_begin|><|tool_call_begin|>functions.";
  const std::string behind = "{}<|tool_call_end|><|tool_calls_section_end|>";
  CHECK(kimi.Accepts(call + "weather_now:12<|tool_call_argument_begin|>" + behind));
  CHECK_FALSE(kimi.Accepts(call + "weather_now<|tool_call_argument_begin|>" + behind));
  CHECK_FALSE(kimi.Accepts(call + "weather:0<|tool_call_argument_begin|>" + behind));
}

TEST_CASE("functions that are not strict take any keys where nothing is declared") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Json tools = Tools();
  tools[1]["function"] = {{"name", "weather_now"}};
  const CallProbe glm = Probe("glm47", tools);
  const std::string answer =
      "<tool_call>weather_now<arg_key>any</arg_key><arg_value>1</arg_value></tool_call>";
  CHECK(glm.Accepts(answer));
  CHECK(glm.Read(answer).calls.at(0).arguments == "{\"any\": \"1\"}");
  // What tags cannot hold is refused by name where it is strict.
  tools[0]["function"]["parameters"]["minProperties"] = 4;
  const auto refused = CallProbe::Create("glm47", tools);
  CHECK(std::string(refused.status().message())
            .find("tools[0].function.parameters: the schema of $: minProperties") !=
        std::string::npos);
  CHECK(CallProbe::Create("kimi_k2", tools).status().code() == absl::StatusCode::kInvalidArgument);
  tools[0]["function"]["strict"] = false;
  CHECK(CallProbe::Create("glm47", tools).ok());
}

// Whether an object is one of `weather`'s.
bool Fits(const Json& arguments) {
  const auto is = [&](const char* name, auto check) {
    return !arguments.contains(name) || check(arguments[name]);
  };
  const auto length = [](const Json& text) {
    size_t count = 0;
    for (const char c : text.get<std::string>()) count += (c & 0xC0) != 0x80;
    return count;
  };
  return arguments.contains("city") && arguments.contains("days") &&
         arguments["city"].is_string() && arguments["days"].is_number_integer() &&
         arguments["days"] >= 1 && arguments["days"] <= 9 &&
         is("unit", [](const Json& v) { return v == "celsius" || v == "kelvin"; }) &&
         is("exact", [](const Json& v) { return v.is_boolean(); }) &&
         is("code",
            [](const Json& v) {
              return v.is_string() && v.get<std::string>().substr(2, 1) == "-";
            }) &&
         is("short", [&](const Json& v) { return v.is_string() && length(v) <= 5; }) &&
         is("note", [&](const Json& v) { return v.is_null() || length(v) >= 2; }) &&
         is("tags", [](const Json& v) {
           return v.is_array() && v.size() <= 3 &&
                  std::all_of(v.begin(), v.end(), [](const Json& tag) { return tag.is_string(); });
         });
}

TEST_CASE("what a model of random weights writes is calls that fit, in each format that is held") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  for (const coordinator::CallFormat& format : coordinator::CallFormats()) {
    if (!format.frame.has_value()) continue;
    CAPTURE(format.name);
    const CallProbe probe = Probe(format.name);
    int ended = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      const auto answer = probe.RandomAnswer(seed, 3000);
      if (!answer.has_value()) continue;
      ++ended;
      INFO(*answer);
      const coordinator::AnswerMessage message = probe.Read(*answer);
      CHECK(message.text.empty());
      REQUIRE(!message.calls.empty());
      for (const coordinator::ToolCall& call : message.calls) {
        const Json arguments = Json::parse(call.arguments);
        CHECK((call.name == "weather" ? Fits(arguments)
                                      : call.name == "weather_now" && arguments.empty()));
      }
    }
    CHECK(ended > 40);
  }
}

TEST_CASE("in tags a oneOf whose schemas share values is refused, one of schemas apart is held") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const auto of_value = [](const char* schema) {
    const Json function = {{"name", "f"},
                           {"strict", true},
                           {"parameters",
                            {{"type", "object"},
                             {"properties", {{"value", Json::parse(schema)}}},
                             {"required", {"value"}},
                             {"additionalProperties", false}}}};
    return CallProbe::Create("deepseek_v32",
                             Json::array({{{"type", "function"}, {"function", function}}}))
        .status();
  };
  CHECK(of_value(R"({"oneOf": [{"type": "number"}, {"type": "boolean"}]})").ok());
  const absl::Status shared = of_value(R"({"oneOf": [{"type": "number"}, {}]})");
  CHECK(absl::IsInvalidArgument(shared));
  CHECK(std::string(shared.message()).find("oneOf") != std::string::npos);
}

}  // namespace
}  // namespace tessera::tests
