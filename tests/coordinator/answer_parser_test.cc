// What models of each family write -> text, thinking and calls, however the answer is cut.

#include "coordinator/answer/answer_parser.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerEvent::Kind;

const Json& Tools() {
  static const Json& tools = *new Json(Json::parse(R"([
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
        "exact": {"type": "boolean"}, "tags": {"type": "array"}, "note": {"anyOf": [{"type": "string"},
        {"type": "null"}]}, "level": {"$ref": "#/$defs/level"}},
      "$defs": {"level": {"type": "number"}}}}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}])"));
  return tools;
}

AnswerFormat FormatOf(std::string_view name) {
  AnswerFormat format;
  format.calls = FindCallFormat(name);
  REQUIRE(format.calls != nullptr);
  format.schemas = ToolSchemas(Tools());
  return format;
}

std::string Spelled(const std::vector<AnswerEvent>& events) {
  std::string all;
  for (const AnswerEvent& event : events) {
    switch (event.kind) {
      case Kind::kText: all += "T(" + event.text + ")"; break;
      case Kind::kThinking: all += "H(" + event.text + ")"; break;
      case Kind::kCall: all += "C(" + event.text + ")"; break;
      case Kind::kArguments: all += "A(" + event.text + ")"; break;
      case Kind::kCallEnd: all += "E"; break;
      case Kind::kCallBroken: all += "B(" + event.text + ")"; break;
    }
  }
  return all;
}

// The events of a text that comes in pieces of `size` bytes, those of one kind joined.
std::string Cut(const AnswerFormat& format, std::string_view text, size_t size, AnswerEnd end) {
  AnswerParser parser(format);
  std::vector<AnswerEvent> all;
  const auto add = [&all](std::vector<AnswerEvent> events) {
    for (AnswerEvent& event : events) {
      const bool joins = !all.empty() && all.back().kind == event.kind &&
                         (event.kind == Kind::kText || event.kind == Kind::kThinking ||
                          event.kind == Kind::kArguments);
      if (joins) {
        all.back().text += event.text;
      } else {
        all.push_back(std::move(event));
      }
    }
  };
  for (size_t at = 0; at < text.size(); at += size) add(parser.Append(text.substr(at, size)));
  add(parser.Finish(end));
  return Spelled(all);
}

// The same for every cut, which is checked.
std::string Read(const AnswerFormat& format, std::string_view text,
                 AnswerEnd end = AnswerEnd::kStop) {
  const std::string whole = Cut(format, text, text.size() + 1, end);
  for (const size_t size : {1, 2, 3, 7}) {
    INFO(size << " bytes a piece of " << text);
    CHECK(Cut(format, text, size, end) == whole);
  }
  return whole;
}
std::string Read(std::string_view name, std::string_view text, AnswerEnd end = AnswerEnd::kStop) {
  return Read(FormatOf(name), text, end);
}

}  // namespace

TEST_CASE("calls of each family") {
  struct Case {
    const char* format;
    const char* text;
    const char* events;
  };
  // Two calls, the first with a quote, a line break and a character of several bytes.
  const Case cases[] = {
      {"hermes",
       "Let me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
       "\"a\\\"b\\nö\"}}\n"
       "</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
       "T(Let me look.)C(weather)A({\"city\": \"a\\\"b\\nö\"})EC(now)A({})E"},
      {"llama3_json", "{\"name\": \"weather\", \"parameters\": {\"city\": \"ö\", \"days\": 3}}",
       "C(weather)A({\"city\": \"ö\", \"days\": 3})E"},
      {"llama3_json",
       "<|python_tag|>{\"name\": \"weather\", \"parameters\": {\"city\": \"ö\"}}; {\"name\": "
       "\"now\", "
       "\"parameters\": {}}",
       "C(weather)A({\"city\": \"ö\"})EC(now)A({})E"},
      {"mistral_v3",
       "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"ö\"}, \"id\": "
       "\"abcdefghi\"}, "
       "{\"name\": \"now\", \"arguments\": {}, \"id\": \"abcdefghj\"}]",
       "C(weather)A({\"city\": \"ö\"})EC(now)A({})E"},
      {"mistral",
       "Hm.[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{\"city\": \"[TOOL_CALLS]\"}[TOOL_CALLS]now"
       "[ARGS]{}",
       "T(Hm.)C(weather)A({\"city\": \"[TOOL_CALLS]\"})EC(now)A({})E"},
      {"qwen3_coder",
       "<tool_call>\n<function=weather>\n<parameter=city>\na \"b\"\n</parameter>\nö\n</parameter>\n"
       "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n"
       "</function>\n</tool_call>",
       "C(weather)A({\"city\": \"a \\\"b\\\"\\n</parameter>\\nö\", \"days\": 3})EC(now)A({})E"},
      {"seed_oss",
       "<seed:tool_call>\n<function=weather>\n<parameter=city>ö</parameter>\n</function>\n"
       "<function=now>\n</function>\n</seed:tool_call>",
       "C(weather)A({\"city\": \"ö\"})EC(now)A({})E"},
      {"minimax_m2",
       "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">a\n</parameter>\n"
       "<parameter name=\"tags\">[1, 2]</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n"
       "</minimax:tool_call>",
       "C(weather)A({\"city\": \"a\\n\", \"tags\": [1, 2]})EC(now)A({})E"},
      {"glm45",
       "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>ö</arg_value>\n<arg_key>days</"
       "arg_key>"
       "\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
       "C(weather)A({\"city\": \"ö\", \"days\": 3})EC(now)A({})E"},
      {"glm45",
       "<tool_call>weather<arg_key>city</arg_key><arg_value>ö</arg_value></tool_call>"
       "<tool_call>now</tool_call>",
       "C(weather)A({\"city\": \"ö\"})EC(now)A({})E"},
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{"
       "\"city\": "
       "\"```\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```"
       "json\n{}\n```"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "C(weather)A({\"city\": \"```\"})EC(now)A({})E"},
      {"deepseek_v31",
       "Ok.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"ö\"}"
       "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
       "｜tool▁calls▁end｜>",
       "T(Ok.)C(weather)A({\"city\": \"ö\"})EC(now)A({})E"},
      {"deepseek_v32",
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter "
       "name=\"city\" "
       "string=\"true\">3</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3"
       "</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n"
       "</｜DSML｜function_calls>",
       "C(weather)A({\"city\": \"3\", \"days\": 3})EC(now)A({})E"},
      {"deepseek_v4",
       "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"exact\" "
       "string=\"false\">true</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
       "C(weather)A({\"exact\": true})E"},
      {"gemma4",
       "Ok.<|tool_call>call:weather{city:<|\"|>a}, "
       "<tool_call|><|\"|>,days:3,tags:[<|\"|>p<|\"|>,{k:1}]}"
       "<tool_call|><|tool_call>call:now{}<tool_call|>",
       "T(Ok.)C(weather)A({\"city\": \"a}, <tool_call|>\", \"days\": 3, \"tags\": [\"p\", {\"k\": "
       "1}]})EC(now)A({})E"},
      {"kimi_k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_"
       "begin|>"
       "{\"city\": \"ö\"}<|tool_call_end|><|tool_call_begin|>functions.now:1"
       "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
       "C(weather)A({\"city\": \"ö\"})EC(now)A({})E"},
      {"command",
       "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"weather\", "
       "\"parameters\": "
       "{\"city\": \"ö\"}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"now\", \"parameters\": "
       "{}}\n]"
       "<|END_ACTION|>",
       "C(weather)A({\"city\": \"ö\"})EC(now)A({})E"},
      {"nemotron",
       "<TOOLCALL>[{\"name\": \"weather\", \"arguments\": {\"city\": \"ö\"}}, {\"name\": \"now\", "
       "\"arguments\": {}}]</TOOLCALL>",
       "C(weather)A({\"city\": \"ö\"})EC(now)A({})E"},
      {"jamba",
       "<tool_calls>[{\"name\": \"weather\", \"arguments\": {\"city\": \"ö\"}}, {\"name\": "
       "\"now\", \"arguments\": {}}]</tool_calls>",
       "C(weather)A({\"city\": \"ö\"})EC(now)A({})E"},
      {"granite",
       "<|tool_call|>[{\"name\": \"weather\", \"arguments\": \"{\\\"city\\\": \\\"ö\\\"}\"}]",
       "C(weather)A({\"city\": \"ö\"})E"},
      {"phi4_mini_json",
       "functools[{\"name\": \"weather\", \"arguments\": {\"city\": \"ö\"}}, {\"name\": \"now\", "
       "\"arguments\": {}}]",
       "C(weather)A({\"city\": \"ö\"})EC(now)A({})E"},
      {"pythonic", "[weather(city='a\"b', days=3, exact=True, tags=[1, {'k': None}]), now()]",
       "C(weather)A({\"city\": \"a\\\"b\", \"days\": 3, \"exact\": true, \"tags\": [1, {\"k\": "
       "null}]})EC(now)A({})E"},
      {"openai",
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
       "to=functions."
       "weather <|constrain|>json<|message|>{\"city\": \"ö\"}",
       "H(Hm.)C(weather)A({\"city\": \"ö\"})E"},
      {"openai",
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.now<|channel|>"
       "commentary json<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>Done.",
       "H(Hm.)C(now)A({})ET(Done.)"},
  };
  for (const Case& c : cases) {
    INFO(c.format << ": " << c.text);
    CHECK(Read(c.format, c.text) == c.events);
  }
}

TEST_CASE("an answer that begins as a call of one function is that call") {
  for (const CallFormat& format : CallFormats()) {
    INFO(format.name);
    AnswerFormat forced = FormatOf(format.name);
    forced.prefix = format.call_start("weather");
    AnswerParser parser(forced);
    const std::string events = Spelled(parser.Append(""));
    // Where the name alone says no more than the start of a call, nothing is known yet.
    CHECK((events.empty() || events == "C(weather)"));
    AnswerFormat any = FormatOf(format.name);
    any.prefix = format.call_start("");
    CHECK(forced.prefix.starts_with(any.prefix));
    CHECK(Spelled(AnswerParser(any).Append("")).empty());
  }
}

TEST_CASE("what is no call stays text") {
  CHECK(Read("hermes", "a <tool_cal b <tool_call> c") == "T(a <tool_cal b <tool_call> c)");
  CHECK(Read("hermes", "<tool_call>\n{\"name\": 3}\n</tool_call>") ==
        "T(<tool_call>\n{\"name\": 3}\n</tool_call>)");
  CHECK(Read("hermes", "<tool_call><tool_call>{\"name\": \"now\"}</tool_call>") ==
        "T(<tool_call>)C(now)A({})E");
  CHECK(Read("llama3_json", "{\"name\": \"Anna\", \"age\": 3}") ==
        "T({\"name\": \"Anna\", \"age\": 3})");
  CHECK(Read("llama3_json", "{\"name\": \"nobody\", \"parameters\": {}}") ==
        "T({\"name\": \"nobody\", \"parameters\": {}})");
  CHECK(Read("llama3_json", "So {\"name\": \"now\", \"parameters\": {}}") ==
        "T(So {\"name\": \"now\", \"parameters\": {}})");
  CHECK(Read("pythonic", "[1] and [now()]") == "T([1] and [now()])");
  CHECK(Read("qwen3_coder", "<tool_call>\nnothing</tool_call>") ==
        "T(<tool_call>\nnothing</tool_call>)");
  CHECK(Read("openai", "plain") == "T(plain)");
  CHECK(Read("hermes", "ends in space \n") == "T(ends in space \n)");
}

TEST_CASE("a call that breaks off") {
  // Cut by length: its parts stay. Ended by the model: what it wrote is text.
  const char* const open = "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Ber";
  CHECK(Read("hermes", open, AnswerEnd::kCut) == "C(weather)A({\"city\": \"Ber)");
  CHECK(
      Read("hermes", open) ==
      "C(weather)A({\"city\": \"Ber)B(<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": "
      "\"Ber)");
  CHECK(Read("hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": ?}} x") ==
        "C(weather)A({\"city\": )B(<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": "
        ")T(?}} "
        "x)");
  CHECK(Read("hermes", "<tool_call>{\"name\": \"we", AnswerEnd::kCut) ==
        "T(<tool_call>{\"name\": \"we)");
}

TEST_CASE("members in another order, and control characters within strings") {
  CHECK(Read("hermes",
             "<tool_call>{\"arguments\": {\"days\": 1}, \"id\": 7, \"name\": \"weather\"}"
             "</tool_call>") == "C(weather)A({\"days\": 1})E");
  CHECK(
      Read("hermes",
           "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"a\nb\"}}</tool_call>") ==
      "C(weather)A({\"city\": \"a\\nb\"})E");
}

TEST_CASE("raw values have the type that the schema says") {
  const auto value = [](std::string_view key, std::string_view text) {
    return ToolSchemas(Tools()).ToJson("weather", key, text);
  };
  CHECK(value("city", "007") == "\"007\"");
  CHECK(value("days", "7") == "7");
  CHECK(value("days", "seven") == "\"seven\"");
  CHECK(value("days", "7.5") == "\"7.5\"");
  CHECK(value("exact", "True") == "true");
  CHECK(value("tags", "[1]") == "[1]");
  CHECK(value("tags", "['a', {'b': None}, (1, 2)]") == "[\"a\", {\"b\": null}, [1, 2]]");
  CHECK(value("tags", "['a") == "\"['a\"");
  CHECK(value("tags", std::string("[1]\0x", 5)) == R"("[1]\u0000x")");
  CHECK(value("note", "null") == "\"null\"");
  CHECK(value("level", "1") == "1");
  CHECK(value("unknown", "1") == "\"1\"");
}

TEST_CASE("thinking is split off") {
  AnswerFormat format = FormatOf("hermes");
  format.thinking = {"<think>", "</think>"};
  const auto read = [&](std::string_view text, PromptThinking at_start) {
    format.at_start = at_start;
    return Read(format, text);
  };
  using enum PromptThinking;
  CHECK(read("<think>\na\n\nb\n</think>\n\nyes", kNone) == "H(a\n\nb)T(yes)");
  CHECK(read("a</think>yes", kOpen) == "H(a)T(yes)");
  CHECK(read("a</think>yes", kClosed) == "T(a</think>yes)");
  CHECK(read("yes <think>", kNone) == "T(yes <think>)");
  CHECK(read("cut </thi", kOpen) == "H(cut </thi)");
  // A call within a line is quoted; one that begins a line ends thinking that was not closed.
  const char* const call = "<tool_call>{\"name\": \"now\"}</tool_call>";
  CHECK(read("I write " + std::string(call) + "\n</think>\n" + call, kOpen) ==
        "H(I write " + std::string(call) + ")C(now)A({})E");
  CHECK(read("Now:\n" + std::string(call), kOpen) == "H(Now:)C(now)A({})E");
  format.calls = nullptr;
  CHECK(read("<think>a</think>" + std::string(call), kNone) == "H(a)T(" + std::string(call) + ")");
}

TEST_CASE("random answers give the same events however they are cut, and lose no text") {
  const char* const pieces[] = {"<tool_call>",
                                "</tool_call>",
                                "{\"name\": \"now\"",
                                ", ",
                                "\"arguments\": {",
                                "}",
                                "}",
                                "[",
                                "]",
                                "\n",
                                "<function=now>",
                                "</function>",
                                "<parameter=a>",
                                "</parameter>",
                                "x",
                                "\"",
                                "\\",
                                "[TOOL_CALLS]",
                                "now(",
                                ")",
                                "<|channel|>",
                                "<|message|>",
                                " to=functions.now",
                                "<｜tool▁call▁begin｜>",
                                "<think>",
                                "</think>",
                                "<arg_key>",
                                "</arg_key>",
                                "ö",
                                ":",
                                "1",
                                "<|tool_call|>"};
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    const int count = 1 + static_cast<int>(random() % 14);
    for (int i = 0; i < count; ++i) text += pieces[random() % std::size(pieces)];
    const auto formats = CallFormats();
    AnswerFormat format = FormatOf(formats[random() % formats.size()].name);
    if (random() % 2 == 0) format.thinking = {"<think>", "</think>"};
    const AnswerEnd end = random() % 2 == 0 ? AnswerEnd::kStop : AnswerEnd::kCut;
    INFO(format.calls->name << ": " << text);
    const std::string events = Read(format, text, end);
    // Without marks of thinking a text that has no call is put out as it is.
    if (events.find("C(") == std::string::npos && format.thinking.opening.empty() &&
        format.calls->name == "hermes")
      CHECK(events == "T(" + text + ")");
  }
}

}  // namespace tessera::coordinator
