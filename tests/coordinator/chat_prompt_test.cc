// From the messages of a request to the text of its prompt: what each kind of template is given.

#include "coordinator/api/chat_prompt.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "coordinator/answer/call_formats.h"

namespace tessera::coordinator {
namespace {

using Catch::Contains;
using Json = nlohmann::ordered_json;

constexpr ChatPromptOptions kPlain = {.add_generation_prompt = false};
constexpr ChatPromptOptions kContinued = {.add_generation_prompt = false,
                                          .continue_final_message = true};

absl::StatusOr<std::string> PromptOf(const ServedModel& model, const Json& messages,
                                     const ChatPromptOptions& options = kPlain) {
  const auto prompt = EncodeChat(model, {{"messages", messages}}, options, 0);
  if (!prompt.ok()) return prompt.status();
  return model.tokenizer->Decode(prompt->token_ids, /*skip_special_tokens=*/false);
}

ServedModel ModelWith(const std::string& chat_template) {
  static const std::shared_ptr<const Tokenizer> tokenizer =
      Tokenizer::Load("deploy/demo_model/tessera-demo").value();
  ServedModel model;
  model.name = "org/demo";
  model.tokenizer = tokenizer;
  model.chat_template = ChatTemplate::Parse(chat_template).value();
  return model;
}

std::string Rendered(const ServedModel& model, const Json& messages) {
  const auto prompt = PromptOf(model, messages);
  INFO(prompt.status().ToString());
  REQUIRE(prompt.ok());
  return *prompt;
}

std::string ErrorOf(const ServedModel& model, const Json& messages) {
  const auto prompt = PromptOf(model, messages);
  REQUIRE_FALSE(prompt.ok());
  return std::string(prompt.status().message());
}

Json Text(const char* role, const Json& content) { return {{"role", role}, {"content", content}}; }

Json Parts(std::initializer_list<const char*> texts) {
  Json parts = Json::array();
  for (const char* text : texts) parts.push_back({{"type", "text"}, {"text", text}});
  return parts;
}

// A conversation with one tool call, whose message has `content`.
Json Called(const Json& arguments, const Json& content = "") {
  Json call = {{"id", "call_1"},
               {"type", "function"},
               {"function", {{"name", "clock"}, {"arguments", arguments}}}};
  Json message = Text("assistant", content);
  message["tool_calls"] = Json::array({call});
  return Json::array({Text("user", "hi"), message, Text("tool", "12")});
}

// Templates that write the calls of a message, by what they do with its arguments.
std::string CallTemplate(const std::string& arguments) {
  return "{%- for m in messages %}{{- m.role + ':' + (m.content or '') }}"
         "{%- for c in m.tool_calls or [] %}{{- '[' + c.function.name + ' ' }}" +
         arguments + "{{- ']' }}{%- endfor %}{{- ';' }}{%- endfor %}";
}
const std::string kAsJson = CallTemplate("{{- c.function.arguments | tojson }}");
const std::string kIterated = CallTemplate(
    "{%- for k, v in c.function.arguments | items %}{{- k ~ '=' ~ v ~ ' ' }}"
    "{%- endfor %}");
const std::string kAdded = CallTemplate("{{- '```' + c.function.arguments + '```' }}");
const std::string kPrinted = CallTemplate("{{- c.function.arguments }}");
const std::string kAsked = CallTemplate(
    "{%- if c.function.arguments is string %}{{- c.function.arguments }}"
    "{%- else %}{{- c.function.arguments | tojson }}{%- endif %}");

// A template that loops over the parts of a message, as those of models for images do.
constexpr char kLoops[] =
    "{%- for m in messages %}{{- m.role + ':' }}{%- for p in m.content %}"
    "{%- if p.type == 'text' %}{{- p.text }}{%- endif %}{%- endfor %}{{- ';' }}{%- endfor %}";

TEST_CASE("continue_final_message leaves the last turn open as transformers does") {
  std::ifstream file("tests/golden/chat_template/continued.json", std::ios::binary);
  const Json cases = Json::parse(file);
  REQUIRE(cases.size() > 100);
  for (const Json& one : cases) {
    const ServedModel model = ModelWith(one["template"]);
    const Json asked = one["content"].is_array() ? Parts({"Tell me"}) : Json("Tell me");
    const auto prompt = PromptOf(
        model, Json::array({Text("user", asked), Text("assistant", one["content"])}), kContinued);
    INFO(one["template"] << "\n" << one["content"] << "\n" << prompt.status().ToString());
    REQUIRE(prompt.ok() == !one["prompt"].is_null());
    if (prompt.ok()) {
      CHECK(*prompt == one["prompt"].get<std::string>());
    } else {
      CHECK(FieldOf(prompt.status()) == "continue_final_message");
    }
  }
}

TEST_CASE("tokens behind the last message are counted apart from those that come again") {
  const ServedModel model = ModelWith(
      "{% for m in messages %}<|user|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>assistant\n<think>\n{% endif %}");
  const Json messages = Json::array({Text("user", "hi"), Text("user", "Tell me more")});
  const auto prompt = EncodeChat(model, {{"messages", messages}}, {}, 0);
  REQUIRE(prompt.ok());
  const std::vector<int32_t>& ids = prompt->token_ids;
  REQUIRE(prompt->opening_tokens > 0);
  const std::vector<int32_t> opening(ids.end() - prompt->opening_tokens, ids.end());
  CHECK(model.tokenizer->Decode(opening, /*skip_special_tokens=*/false) ==
        "<|end|>\n<|assistant|>assistant\n<think>\n");
  // The next turn's prompt begins with the rest.
  Json next = messages;
  next.push_back(Text("assistant", "more"));
  next.push_back(Text("user", "and more"));
  const auto later = EncodeChat(model, {{"messages", next}}, {}, 0);
  REQUIRE(later.ok());
  CHECK(std::equal(ids.begin(), ids.end() - prompt->opening_tokens, later->token_ids.begin()));
  // Another last message stands behind what comes before this one's text.
  const std::vector<int32_t> last(ids.end() - prompt->last_text_tokens, ids.end());
  CHECK(model.tokenizer->Decode(last, /*skip_special_tokens=*/false) ==
        "Tell me more<|end|>\n<|assistant|>assistant\n<think>\n");

  const auto open = EncodeChat(model, {{"messages", messages}}, kContinued, 0);
  REQUIRE(open.ok());
  CHECK(open->opening_tokens == 0);
}

TEST_CASE("a last message without content is not continued") {
  const ServedModel model = ModelWith("{% for m in messages %}{{ m.content or '' }}{% endfor %}");
  for (const Json& content : {Json(), Json::array()}) {
    const auto prompt =
        PromptOf(model, Json::array({Text("user", "x"), Text("assistant", content)}), kContinued);
    if (content.is_array()) {
      CHECK(prompt.ok());  // no parts are empty text
    } else {
      CHECK(FieldOf(prompt.status()) == "continue_final_message");
    }
  }
}

TEST_CASE("tool calls' arguments reach a template in the form that it takes") {
  const char* const city = R"({"city": "Paris", "n": 2, "a": {"z": 1, "b": [true, null]}})";
  const std::string after = "];tool:12;";
  const std::string before = "user:hi;assistant:[clock ";
  CHECK(Rendered(ModelWith(kAsJson), Called(city)) == before + city + after);
  CHECK(Rendered(ModelWith(kAsked), Called(city)) == before + city + after);
  CHECK(Rendered(ModelWith(kAdded), Called(city)) == before + "```" + city + "```" + after);
  // A dict would be printed in Python's way, which no model has learnt.
  CHECK(Rendered(ModelWith(kPrinted), Called(city)) == before + city + after);
  CHECK(Rendered(ModelWith(kIterated), Called(R"({"city": "Paris", "n": 2})")) ==
        before + "city=Paris n=2 " + after);
  // Clients that send the object itself.
  const Json object = Json::parse(R"({"city": "Paris"})");
  CHECK(Rendered(ModelWith(kAsJson), Called(object)) == before + R"({"city": "Paris"})" + after);
  CHECK(Rendered(ModelWith(kAdded), Called(object)) ==
        before + R"(```{"city":"Paris"}```)" + after);
}

TEST_CASE("no arguments are an empty object, however they are written") {
  for (const Json& none : {Json(""), Json("null"), Json(" "), Json(), Json("{}")}) {
    INFO(none);
    CHECK(Rendered(ModelWith(kAsJson), Called(none)) == "user:hi;assistant:[clock {}];tool:12;");
    CHECK(Rendered(ModelWith(kIterated), Called(none)) == "user:hi;assistant:[clock ];tool:12;");
    CHECK(Rendered(ModelWith(kAdded), Called(none)) ==
          "user:hi;assistant:[clock ```{}```];tool:12;");
  }
}

TEST_CASE("arguments that are no object are a text in one where the template needs one") {
  for (const char* wrong : {"{\"a\": ", "[1]", "3", "{} {}", "{}, \"x\": {}"}) {
    INFO(wrong);
    CHECK(Rendered(ModelWith(kAsJson), Called(wrong)) ==
          "user:hi;assistant:[clock {\"INVALID_JSON\": " + Json(wrong).dump() + "}];tool:12;");
    CHECK(Rendered(ModelWith(kAdded), Called(wrong)) ==
          "user:hi;assistant:[clock ```" + std::string(wrong) + "```];tool:12;");
    CHECK(Rendered(ModelWith(kAsked), Called(wrong)) ==
          "user:hi;assistant:[clock " + std::string(wrong) + "];tool:12;");
  }
  CHECK_THAT(ErrorOf(ModelWith(kAsJson), Called(3)), Contains("messages[1].tool_calls[0]"));
  // Text within text is no way around the limits of a request.
  std::string deep = "{\"a\": " + std::string(70, '[') + std::string(70, ']') + "}";
  CHECK_THAT(ErrorOf(ModelWith(kAsJson), Called(deep)), Contains("deeper than 64 levels"));
  Json many = Called("{}");
  Json& calls = many[1]["tool_calls"];
  std::string wide = "{\"a\": [[]";
  for (int i = 0; i < 3000; ++i) wide += ",[]";
  wide += "]}";
  for (int i = 0; i < 40; ++i) {
    calls.push_back(calls[0]);
    calls.back()["function"]["arguments"] = wide;
  }
  CHECK_THAT(ErrorOf(ModelWith(kAsJson), many), Contains("objects and arrays"));
}

TEST_CASE("null content stays null where the template takes it") {
  const std::string tells =
      "{% for m in messages %}{{ m.role }}="
      "{{ 'null' if m.content is none else m.content }};{% endfor %}";
  const Json null = Called("{}", nullptr);
  CHECK(Rendered(ModelWith(tells), null) == "user=hi;assistant=null;tool=12;");
  CHECK(Rendered(ModelWith(tells), Called("{}", "")) == "user=hi;assistant=;tool=12;");
  Json absent = null;
  absent[1].erase("content");
  CHECK(Rendered(ModelWith(tells), absent) == "user=hi;assistant=null;tool=12;");
  // These fail on null, and write None.
  CHECK(Rendered(ModelWith("{% for m in messages %}{{ m.role + '=' + m.content }};{% endfor %}"),
                 null) == "user=hi;assistant=;tool=12;");
  CHECK(Rendered(ModelWith("{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"),
                 null) == "user=hi;assistant=;tool=12;");
}

TEST_CASE("calls that a template writes beside null alone are written beside empty text too") {
  const ServedModel model = ModelWith(
      "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}"
      "[{{ c.function.name + c.function.arguments }}]{% endfor %}{% else %}{{ m.content }}"
      "{% endif %};{% endfor %}");
  CHECK(Rendered(model, Called("{}", nullptr)) == "hi;[clock{}];12;");
  CHECK(Rendered(model, Called("{}", "")) == "hi;[clock{}];12;");
}

TEST_CASE("templates that loop over parts get parts, others get text") {
  const Json parts =
      Json::array({Text("system", "Be brief"), Text("user", Parts({"What", " is"}))});
  CHECK(Rendered(ModelWith(kLoops), parts) == "system:Be brief;user:What is;");
  const char* const text = "{% for m in messages %}{{ m.role ~ ':' ~ m.content }};{% endfor %}";
  CHECK(Rendered(ModelWith(text), parts) == "system:Be brief;user:What is;");
  // One that takes both sees what was sent.
  const ServedModel both = ModelWith(
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for p in m.content %}{{ p.text }}{{ '' if loop.last else '+' }}{% endfor %}{% endif %};"
      "{% endfor %}");
  CHECK(Rendered(both, parts) == "Be brief;What+ is;");
  // One that takes parts from users only.
  const ServedModel mixed = ModelWith(
      "{% for m in messages %}{% if m.role == 'user' %}{% for p in m.content %}{{ p.text }}"
      "{% endfor %}{% else %}{{ m.content.strip() }}{% endif %};{% endfor %}");
  CHECK(Rendered(mixed, parts) == "Be brief;What is;");
  // Null is no part.
  CHECK(Rendered(ModelWith(kLoops), Called("{}", nullptr)) == "user:hi;assistant:;tool:12;");
}

TEST_CASE("a template that writes content in neither form is refused by name") {
  CHECK_THAT(ErrorOf(ModelWith("{{ messages | length }} turns"), Json::array({Text("user", "x")})),
             Contains("neither as text nor as a list of parts") && Contains("--chat-template"));
  // One that fails on the probes is not judged by them.
  const ServedModel strict = ModelWith(
      "{% if messages | length < 2 %}{{ raise_exception('two turns') }}{% endif %}"
      "{% for m in messages %}{{ m.content }}{% endfor %}");
  CHECK(Rendered(strict, Json::array({Text("user", "x"), Text("assistant", "y")})) == "xy");
  CHECK_THAT(ErrorOf(strict, Json::array({Text("user", "x")})), Contains("two turns"));
}

TEST_CASE("system messages behind the first reach templates that write the first alone") {
  constexpr char kStrict[] =
      "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
      "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
      "{{ m.role }}={{ m.content }};{% endfor %}";
  constexpr char kDrops[] =
      "{% for m in messages %}{% if m.role != 'system' or loop.first %}{{ m.role }}="
      "{{ m.content }};{% endif %}{% endfor %}";
  const Json system = Text("system", "a"), late = Text("system", "b"), user = Text("user", "hi");
  const Json answer = Text("assistant", "yes"), developer = Text("developer", "c");
  const std::string reminder = "<system-reminder>\nb\n</system-reminder>";
  for (const char* const source : {kStrict, kDrops}) {
    const ServedModel model = ModelWith(source);
    CHECK(Rendered(model, Json::array({system, late, developer, user})) ==
          "system=a\n\nb\n\nc;user=hi;");
    CHECK(Rendered(model, Json::array({system, user, late})) ==
          "system=a;user=hi\n\n" + reminder + ";");
    CHECK(Rendered(model, Json::array({user, answer, late, user, answer})) ==
          "user=hi;assistant=yes;user=" + reminder + "\n\nhi;assistant=yes;");
    CHECK(Rendered(model, Json::array({user, Text("tool", "12"), late, answer})) ==
          "user=hi;tool=12\n\n" + reminder + ";assistant=yes;");
    CHECK(Rendered(model, Json::array({user, answer, late, Text("tool", "12"), answer})) ==
          "user=hi;assistant=yes;tool=12\n\n" + reminder + ";assistant=yes;");
    CHECK(Rendered(model, Json::array({user, answer, Text("system", ""), user})) ==
          "user=hi;assistant=yes;user=hi;");
  }
  CHECK(Rendered(ModelWith("{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
                           "{{ raise_exception('no') }}{% endif %}{% for p in m.content %}"
                           "{{ p.text }};{% endfor %}{% endfor %}"),
                 Json::array({system, user, Text("system", Parts({"b"})), answer})) ==
        "a;hi;" + reminder + ";yes;");
  // One that writes them where they stand is given them so.
  CHECK(Rendered(ModelWith("{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"),
                 Json::array({system, late, user, late, answer})) ==
        "system=a;system=b;user=hi;system=b;assistant=yes;");
}

TEST_CASE("a template that gathers system messages at its beginning gets them at their place") {
  // As those of DeepSeek do.
  const ServedModel model = ModelWith(
      "{% set all = namespace(text='') %}{% for m in messages %}{% if m.role == 'system' %}"
      "{% set all.text = all.text + m.content + ';' %}{% endif %}{% endfor %}{{ all.text }}"
      "{% for m in messages %}{% if m.role != 'system' %}{{ m.role }}={{ m.content }};{% endif %}"
      "{% endfor %}");
  CHECK(Rendered(model, Json::array({Text("system", "a"), Text("user", "hi"), Text("system", "b"),
                                     Text("assistant", "yes")})) ==
        "a;user=hi\n\n<system-reminder>\nb\n</system-reminder>;assistant=yes;");
}

TEST_CASE("turns that a template refuses are joined to what stands before them") {
  // As those of Mistral do: one message of a user's between two of the assistant's.
  const ServedModel model = ModelWith(
      "{% set n = namespace(user=true) %}{% for m in messages %}"
      "{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"
      "{% if (m.role == 'user') != n.user %}{{ raise_exception('must alternate') }}{% endif %}"
      "{% set n.user = not n.user %}{% endif %}{{ m.role }}={{ m.content }}"
      "{% for c in m.tool_calls or [] %}[{{ c.function.name ~ c.function.arguments.probe_key }}]"
      "{% endfor %};{% endfor %}");
  const Json user = Text("user", "hi"), answer = Text("assistant", "yes");
  CHECK(Rendered(model, Json::array({user, user, answer, user})) ==
        "user=hi\n\nhi;assistant=yes;user=hi;");
  Json called = Called(Json::object());
  called.push_back(Text("user", "go on"));
  CHECK(Rendered(model, called) == "user=hi;assistant=[clock];tool=12\n\ngo on;");
  // One that takes them is given them.
  CHECK(Rendered(ModelWith("{% for m in messages %}{{ m.content }};{% endfor %}"),
                 Json::array({user, user})) == "hi;hi;");
}

TEST_CASE("several calls are a message each where the template takes one") {
  constexpr char kWrites[] =
      "{% for m in messages %}{{ m.role }}={{ m.content }}{% if m.tool_calls %}"
      "[{{ m.tool_calls[0].function.name ~ m.tool_calls[0].function.arguments }}]{% endif %};"
      "{% endfor %}";
  // Llama 3's refuses a second one, gpt-oss's loses it.
  const std::string refuses =
      "{% for m in messages %}{% if m.tool_calls and m.tool_calls | length > 1 %}"
      "{{ raise_exception('single tool-calls') }}{% endif %}{% endfor %}";
  const Json object = Json::object();
  Json calls = Called(object, "Look.")[1];
  calls["tool_calls"].push_back({{"id", "call_2"},
                                 {"type", "function"},
                                 {"function", {{"name", "zone"}, {"arguments", object}}}});
  const auto result = [](const char* id, const char* text) {
    Json message = Text("tool", text);
    message["tool_call_id"] = id;
    return message;
  };
  const Json messages =
      Json::array({Text("user", "hi"), calls, result("call_2", "two"), result("call_1", "one")});
  for (const std::string& source : {refuses + kWrites, std::string(kWrites)}) {
    CHECK(Rendered(ModelWith(source), messages) ==
          "user=hi;assistant=Look.[clock{}];tool=one;assistant=[zone{}];tool=two;");
  }
  // Without ids results are those of the calls at their place.
  Json unnamed = messages;
  for (const size_t i : {2, 3}) unnamed[i].erase("tool_call_id");
  for (Json& call : unnamed[1]["tool_calls"]) call.erase("id");
  CHECK(Rendered(ModelWith(std::string(kWrites)), unnamed) ==
        "user=hi;assistant=Look.[clock{}];tool=two;assistant=[zone{}];tool=one;");
}

TEST_CASE("tool calls that are no list are the template's to write") {
  const std::string first_alone =
      "{% for m in messages %}{{ m.role }}={{ m.content }}{% if m.tool_calls %}"
      "[{{ m.tool_calls[0].function.name ~ m.tool_calls[0].function.arguments }}]{% endif %};"
      "{% endfor %}";
  for (const Json& odd : {Json{{"a", 1}, {"b", 2}}, Json("calls"), Json(3)}) {
    Json message = Text("assistant", "hi");
    message["tool_calls"] = odd;
    const ServedModel model = ModelWith(first_alone);
    CHECK_NOTHROW(PromptOf(model, Json::array({Text("user", "hi"), message})).ok());
  }
}

TEST_CASE("no tool calls are none, however they are written, and parts of Responses are text") {
  const ServedModel model = ModelWith(
      "{% for m in messages %}{% if 'tool_calls' in m %}{{ m.tool_calls | length }} calls;"
      "{% else %}{{ m.content }};{% endif %}{% endfor %}");
  for (const Json& none : {Json(), Json::array()}) {
    Json answer = Text("assistant", "yes");
    answer["tool_calls"] = none;
    CHECK(Rendered(model, Json::array({Text("user", "hi"), answer})) == "hi;yes;");
  }
  const Json parts = {{{"type", "input_text"}, {"text", "a"}},
                      {{"type", "output_text"}, {"text", "b"}, {"annotations", Json::array()}},
                      {{"type", "refusal"}, {"refusal", "c"}}};
  CHECK(Rendered(model, Json::array({Text("user", parts)})) == "abc;");
  CHECK_THAT(ErrorOf(model, Json::array({Text("user", {{{"type", "image_url"}}})})),
             Contains("parts other than text are not supported yet, as of the type \"image_url\""));
}

TEST_CASE("an assistant's reasoning has one value under three names") {
  const ServedModel model = ModelWith(
      "{% for m in messages %}{{ m.content }}({{ m.reasoning }},{{ m.reasoning_content }},"
      "{{ m.thinking }}){% endfor %}");
  for (const char* name : {"reasoning", "reasoning_content", "thinking"}) {
    Json answer = Text("assistant", "4");
    answer[name] = "two and two";
    CHECK(Rendered(model, Json::array({answer})) == "4(two and two,two and two,two and two)");
    // Null is none, and what is there stays.
    answer["reasoning_content"] = name == std::string("reasoning_content") ? Json("a") : Json();
    if (answer["reasoning_content"].is_null())
      CHECK(Rendered(model, Json::array({answer})) == "4(two and two,two and two,two and two)");
    Json user = Text("user", "4");
    user[name] = "x";
    CHECK_THAT(Rendered(model, Json::array({user})), !Contains("x,x"));
  }
  Json two = Text("assistant", "4");
  two["reasoning"] = "a";
  two["thinking"] = "b";
  CHECK(Rendered(model, Json::array({two})) == "4(a,a,b)");
  two["reasoning"] = "";
  CHECK(Rendered(model, Json::array({two})) == "4(b,b,b)");
}

TEST_CASE("gpt-oss has three efforts, other templates see what was asked for") {
  ServedModel model = ModelWith("{{ messages[0].content }}({{ reasoning_effort }})");
  const auto seen = [&model](const char* effort) {
    ChatPromptOptions options = kPlain;
    options.reasoning_effort = effort;
    return PromptOf(model, Json::array({Text("user", "")}), options).value();
  };
  CHECK(seen("xhigh") == "(xhigh)");
  model.call_format = FindCallFormat("openai");
  REQUIRE(model.call_format != nullptr);
  CHECK(seen("none") == "(low)");
  CHECK(seen("minimal") == "(low)");
  CHECK(seen("medium") == "(medium)");
  CHECK(seen("xhigh") == "(high)");
}

TEST_CASE("without a template chat is refused with the reason and the way out") {
  ServedModel model = ModelWith("x");
  model.chat_template.reset();
  const Json hi = Json::array({Text("user", "hi")});
  CHECK_THAT(ErrorOf(model, hi), Contains("'org/demo' has no chat template") &&
                                     Contains("/v1/completions") && Contains("--chat-template"));
  model.chat_refusal = "chat_template.jinja: line 3: no filter named 'urlize'";
  CHECK_THAT(ErrorOf(model, hi),
             Contains("cannot be used: chat_template.jinja: line 3: no filter") &&
                 Contains("/v1/completions") && Contains("--chat-template"));
}

}  // namespace
TEST_CASE("a message of a user or the system has content") {
  const ServedModel model = ModelWith("{% for m in messages %}{{ m.content }}{% endfor %}");
  for (const char* role : {"user", "system", "developer"}) {
    const Json messages = {Text("user", "hi"), {{"role", role}, {"contents", "x"}}};
    CHECK_THAT(ErrorOf(model, messages), Contains("messages[1].content: missing"));
  }
  CHECK(Rendered(model, {Text("user", "hi"), {{"role", "assistant"}}, Text("user", nullptr)}) ==
        "hi");
}

}  // namespace tessera::coordinator
