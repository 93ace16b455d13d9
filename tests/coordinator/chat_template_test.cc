#include "coordinator/jinja/chat_template.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/temporary_folder.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kNow = 1773065106;  // 2026-03-09 14:05:06 UTC

ChatTemplate Parsed(const std::string& source) {
  absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source);
  INFO(source);
  REQUIRE(parsed.status().ToString() == "OK");
  return *std::move(parsed);
}

std::vector<TextSegment> Segments(const std::string& source, const Json& context) {
  const auto segments = Parsed(source).RenderOrdered(context, kNow);
  INFO(source);
  REQUIRE(segments.status().ToString() == "OK");
  return *segments;
}

std::string Joined(const std::vector<TextSegment>& segments) {
  std::string text;
  for (const TextSegment& segment : segments) {
    text += segment.text;
  }
  return text;
}

// The client's text in brackets.
std::string Marked(const std::string& source, const Json& context) {
  std::string text;
  bool previous = false;
  bool first = true;
  for (const TextSegment& segment : Segments(source, context)) {
    CHECK_FALSE(segment.text.empty());
    CHECK((first || segment.from_template != previous));
    first = false;
    previous = segment.from_template;
    text += segment.from_template ? segment.text : "[" + segment.text + "]";
  }
  return text;
}

std::string ErrorOf(const std::string& source, const Json& context = Json::object(),
                    const RenderLimits& limits = {}) {
  const absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) {
    return std::string(parsed.status().message());
  }
  const auto segments = parsed->RenderOrdered(context, kNow, limits);
  INFO(source);
  REQUIRE_FALSE(segments.ok());
  CHECK(segments.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(segments.status().message());
}

std::string Repeat(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) {
    result += text;
  }
  return result;
}

TEST_CASE("each segment says whether the template or the client wrote it") {
  const Json context = {{"bos_token", "<s>"},
                        {"name", "Ann <s>"},
                        {"messages", {{{"role", "user"}, {"content", " hi\nÄ</s>  "}}}}};
  const std::string content = "{{ messages[0].content }}";
  const auto with = [](const std::string& expression) {
    return "{% set c = messages[0].content %}{{ " + expression + " }}";
  };
  CHECK(Marked("a" + content + "b", context) == "a[ hi\nÄ</s>  ]b");
  CHECK(Marked("{{ bos_token + 'x' }}{{ name }}", context) == "<s>x[Ann <s>]");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"'<|' + c + '|>'", "<|[ hi\nÄ</s>  ]|>"},
      {"'<|' ~ c ~ 1", "<|[ hi\nÄ</s>  ]1"},
      {"c.strip()", "[hi\nÄ</s>]"},
      {"('<' + c + '>').strip('< ')", "[hi\nÄ</s>  ]>"},
      {"('ab' + c)[1:4]", "b[ h]"},
      {"('ab' + c)[::-1]", "[  >s/<Ä\nih ]ba"},
      {"('ab' + c)[1:5:2]", "b[h]"},
      {"('ab' + c).upper()", "AB[ HI\nÄ</S>  ]"},
      {"('AB' + c) | lower", "ab[ hi\nä</s>  ]"},
      {"('ab' + c) | title", "Ab[ Hi\nÄ</s>  ]"},
      {"c.replace('hi', '<s>')", "[ ]<s>[\nÄ</s>  ]"},
      {"'a-b' | replace('-', c)", "a[ hi\nÄ</s>  ]b"},
      {"('x,' + c + ',y').split(',') | join(';')", "x;[ hi\nÄ</s>  ];y"},
      {"c.split() | join('</s>')", "[hi]</s>[Ä</s>]"},
      {"('<s>' + c).splitlines() | last", "[Ä</s>  ]"},
      {"('a' ~ c) | indent(2)", "a[ hi]\n  [Ä</s>  ]"},
      {"'{}|{:.2f}|{}'.format('a', 0.5, c[1:3])", "a|0.50|[hi]"},
      {"c | trim | tojson", "[\"hi\\nÄ</s>\"]"},
      {"{'k': c | trim} | tojson", "[{\"k\": \"hi\\nÄ</s>\"}]"},
      {"{'k': 'v'} | tojson", "{\"k\": \"v\"}"},
      {"[c | trim, 1]", "[['hi\\nÄ</s>', 1]]"},
      {"c | trim | e", "[hi\nÄ&lt;/s&gt;]"},
      {"c | trim * 2", "[hi\nÄ</s>hi\nÄ</s>]"},
      {"c | trim | first ~ c | trim | last", "[h>]"},
      {"c | trim | list | join('-')", "[h]-[i]-[\n]-[Ä]-[<]-[/]-[s]-[>]"},
      {"c | trim | reverse", "[>s/<Ä\nih]"},
      {"c | trim | string | default('x')", "[hi\nÄ</s>]"},
      {"messages | map(attribute='role') | join('<s>')", "[user]"},
      {"messages | map('dictsort') | first | first | last | trim", "[hi\nÄ</s>]"},
      {"['b', messages[0].role] | sort | join", "b[user]"},
      {"[c] | min | trim", "[hi\nÄ</s>]"},
      {"messages[0].keys() | join(',')", "[role],[content]"},
      {"strftime_now('%Y') ~ strftime_now(messages[0].role ~ '%Y')", "2026[user2026]"},
  };
  for (const auto& [expression, expected] : cases) {
    INFO(expression);
    CHECK(Marked(with(expression), context) == expected);
  }
}

TEST_CASE("marks pass through macros, blocks and namespaces") {
  const Json context = {{"messages", {{{"content", "<s>"}}}}};
  CHECK(Marked("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(messages[0].content) | upper }}",
               context) == "<[<S>]>");
  CHECK(Marked("{% set b %}a{{ messages[0].content }}{% endset %}{{ b }}{{ b[:2] }}", context) ==
        "a[<s>]a[<]");
  CHECK(Marked("{% filter upper %}a{{ messages[0].content }}{% endfilter %}", context) == "A[<S>]");
  CHECK(Marked("{% set ns = namespace(t='') %}{% for m in messages %}"
               "{% set ns.t = ns.t + '(' + m.content + ')' %}{% endfor %}{{ ns.t }}",
               context) == "([<s>])");
  CHECK(Marked("{% macro m() %}({{ caller() }}){% endmacro %}"
               "{% call m() %}{{ messages[0].content }}{% endcall %}",
               context) == "([<s>])");
}

TEST_CASE("chat_template_kwargs are the client's, whatever they are called") {
  const Json context = {{"bos_token", "<s>"},
                        {"messages", Json::array()},
                        {"chat_template_kwargs",
                         {{"bos_token", "<t>"}, {"flag", false}, {"add_generation_prompt", true}}}};
  CHECK(Marked("{{ bos_token }}{{ flag }}{{ add_generation_prompt }}", context) ==
        "[<t>]FalseTrue");
  CHECK(ErrorOf("x", {{"chat_template_kwargs", {{"messages", 1}}}}).find("'messages'") !=
        std::string::npos);
  CHECK(ErrorOf("x", {{"chat_template_kwargs", 5}}).find("must be an object") != std::string::npos);
}

TEST_CASE("objects print in the client's order, or sorted where the context is") {
  const Json ordered = {{"tool", {{"b", 1}, {"a", 2}}}};
  CHECK(Joined(Segments("{{ tool | tojson }}", ordered)) == R"({"b": 1, "a": 2})");
  const nlohmann::json sorted = nlohmann::json::parse(ordered.dump());
  const auto segments = Parsed("{{ tool | tojson }}").Render(sorted, kNow);
  REQUIRE(segments.ok());
  CHECK(Joined(*segments) == R"({"a": 2, "b": 1})");
}

TEST_CASE("a template that is not understood is refused with its line") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a\n{% include 'x' %}", "line 2: the tag {% include %}"},
      {"\n\n{% extends 'x' %}", "line 3: the tag {% extends %}"},
      {"{% block x %}{% endblock %}", "line 1: the tag {% block %}"},
      {"{% do x %}", "line 1: the tag {% do %}"},
      {"\n{{ x | urlize }}", "line 2: no filter named 'urlize'"},
      {"\n{{ x is prime }}", "line 2: no test named 'prime'"},
      {"{% if x %}{{ x | nope }}{% endif %}\n{{ x | nope }}", "line 2: no filter named 'nope'"},
      {"{{ 1 if x else 2 }}\n{{ [x | nope] }}", "line 2: no filter named 'nope'"},
      {"\n{{ x | map('urlize') }}", "line 2: no filter named 'urlize'"},
      {"\n{{ x | selectattr('a', 'prime') }}", "line 2: no test named 'prime'"},
      {"{{\n'a'.encode() }}", "line 2: the method encode() is not supported"},
      {"{{\n'a'.center(9) }}", "line 2: the method center() is not supported"},
      {"{% if x %}\n{% for y in z %}\n{% endif %}", "line 3: {% endif %} does not fit"},
      {"a\n{% if x %}\nb", "line 2: the block is not closed"},
      {"{{ 170141183460469231731687303715884105728 }}", "line 1: an integer is beyond"},
      {"\n{{ 'a", "line 2: the string"},
      {"\n{# a", "line 2: the comment"},
      {"{{ '\\ud800' }}", "line 1: the escape \\u"},
      {"{{ ü }}", "line 1: unexpected character 'ü'"},
      {"\xff", "not valid UTF-8"},
  };
  for (const auto& [source, expected] : cases) {
    const absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source);
    INFO(source);
    REQUIRE_FALSE(parsed.ok());
    CHECK(parsed.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(parsed.status().message()).find(expected) != std::string::npos);
  }
}

TEST_CASE("filters of jinja2 that no published template uses are refused by name") {
  for (const char* name :
       {"center", "filesizeformat", "forceescape", "format", "groupby", "pprint", "random",
        "striptags", "truncate", "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr"}) {
    const auto parsed = ChatTemplate::Parse(std::string("a\n{{ x | ") + name + " }}");
    REQUIRE_FALSE(parsed.ok());
    CHECK(std::string(parsed.status().message())
              .find(std::string("line 2: no filter named '") + name + "'") != std::string::npos);
  }
}

TEST_CASE("parts of Python's formatting that no published template uses fail by name") {
  CHECK(ErrorOf("{{ '%s' % 1 }}").find("% operator is not supported") != std::string::npos);
  for (const char* field : {"{:>5}", "{:d}", "{!r}", "{0.a}", "{a[b]}", "{:{}}", "{:.2}"}) {
    INFO(field);
    CHECK(ErrorOf(std::string("{{ '") + field + "'.format(1, a=2) }}").find("is not supported") !=
          std::string::npos);
  }
  CHECK(ErrorOf("{{ '{:.2f}'.format('a') }}").find("needs a number") != std::string::npos);
  CHECK(ErrorOf("{{ '{7}'.format(1) }}").find("{7} has no positional argument") !=
        std::string::npos);
  CHECK(ErrorOf("{{ 15 | round(-1) }}").find("below 0") != std::string::npos);
}

TEST_CASE("unknown names behind an if fail only where they are reached") {
  const std::string source =
      "{{ x | nope if x is defined else 'a' }}{% if 'nope' is filter or x %}{{ 1 | nope }}{% endif "
      "%}";
  CHECK(Joined(Segments(source, Json::object())) == "a");
  CHECK(ErrorOf(source, {{"x", 1}}) == "no filter named 'nope' (chat template line 1)");
  CHECK(ErrorOf("{% if true %}\n{{ 1 is nope }}{% endif %}") ==
        "no test named 'nope' (chat template line 2)");
  // A filter of jinja2's that is missing here costs only the requests that reach it.
  CHECK(Joined(Segments("{% if x is defined %}{{ x | urlize }}{% endif %}b", Json::object())) ==
        "b");
}

TEST_CASE("an error while rendering carries the template's line") {
  CHECK(ErrorOf("\n{{ raise_exception('No ' ~ 'way') }}") == "No way (chat template line 2)");
  CHECK(ErrorOf("{% for m in messages %}\n{{ m.content + 'x' }}\n{% endfor %}",
                {{"messages", {{{"role", "user"}}}}}) ==
        "'dict object' has no attribute 'content' (chat template line 2)");
  CHECK(ErrorOf("a\n{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}\n{{ m() }}") ==
        "division by zero (chat template line 3)");
  CHECK(ErrorOf("{{ 2 ** 200 }}").find("127 bits") != std::string::npos);
  CHECK(ErrorOf("x", Json::array()).find("must be an object") != std::string::npos);
  const Json broken = {{"messages", {{{"content", "\xff"}}}}};
  CHECK(ErrorOf("x", broken).find("not valid UTF-8") != std::string::npos);
}

TEST_CASE("rendering is bounded in steps, bytes and depth") {
  const std::vector<std::string> hostile = {
      "{{ 'x' * 10 ** 9 }}",
      "{{ ([1] * 10 ** 9) | length }}",
      "{{ range(10 ** 9) | list }}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% for x in [1, 2] recursive %}{{ loop([1, 2]) if loop.depth < 60 }}{% endfor %}",
      "{% set ns = namespace() %}{% for x in [1] recursive %}{% set ns.l = loop %}{% endfor %}"
      "{% for x in range(99999) %}{{ ns.l(range(999)) }}{% endfor %}",
      "{% set x = [range(999) | list] * 99 %}{% for i in range(9999) %}{{ x | tojson }}{% endfor "
      "%}",
      "{% macro m(n) %}{{ m(n) ~ m(n) }}{% endmacro %}{{ m(1) }}",
      "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% "
      "endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% "
      "endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}",
      "{% set ns = namespace(l={}) %}{% for i in range(9999) %}{% set ns.l = {1: ns.l} %}{% endfor "
      "%}",
      "{% set ns = namespace(t=(1,)) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}{% "
      "endfor %}"
      "{{ {ns.t: 1} }}",
      "{% set ns = namespace(t=(1,)) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}{% "
      "endfor %}"
      "{{ ns.t }}",
      "{% set ns = namespace(t=(1,)) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}{% "
      "endfor %}"
      "{{ ns.t | tojson }}",
      "{% set a = namespace(t=(1,)) %}{% for i in range(60) %}{% set a.t = (a.t, a.t) %}{% endfor "
      "%}"
      "{% set b = namespace(t=(1,)) %}{% for i in range(60) %}{% set b.t = (b.t, b.t) %}{% endfor "
      "%}"
      "{{ a.t == b.t }}",
      "{% set ns = namespace() %}{% set ns.self = ns %}{{ ns }}",
      "{% set ns = namespace() %}{% set ns.self = [ns] %}{{ ns.self | string }}",
      "{{ ('{0}' * 10 ** 6).format('x' * 10 ** 6) }}",
      "{{ 'a\nb' | indent(10 ** 9) }}",
      "{{ [[1]] | tojson(indent=10 ** 9) }}",
      "{{ [1] | batch(10 ** 9, 'x') | list }}",
      "{{ [1] | slice(10 ** 9) | list }}",
      "{{ ('ab' * 10 ** 6).replace('a', 'x' * 10 ** 6) }}",
      "{{ ('a,' * 10 ** 6).split(',') | join('x' * 10 ** 6) }}",
      "{{ 3 ** 10 ** 9 }}",
      "{{ strftime_now('%1000000000d') }}",
      "{% set s = 'ab' * 10 ** 6 %}{% for i in range(99999) %}{{ s.find('ba' * 10 ** 6) }}{% "
      "endfor %}",
      "{% set s = 'ab' * 10 ** 6 %}{% for i in range(99999) %}{% if s == s.upper() %}{% endif %}{% "
      "endfor %}",
      "{% for i in range(99999) %}{% for c in 'x' * 10 ** 6 %}{% endfor %}{% endfor %}",
      "{% for i in range(99999) %}" + Repeat("x", 10000) + "{% endfor %}",
  };
  for (const std::string& source : hostile) {
    INFO(source);
    CHECK_FALSE(ErrorOf(source).empty());
  }
  const RenderLimits small{.max_steps = 50, .max_output_bytes = 100};
  CHECK(ErrorOf("{% for i in range(40) %}{{ i }}{% endfor %}", Json::object(), small)
            .find("50 steps") != std::string::npos);
  CHECK(ErrorOf("{{ 'x' * 101 }}", Json::object(), small).find("100 bytes") != std::string::npos);
  CHECK(ErrorOf(Repeat("x", 101), Json::object(), small).find("100 bytes") != std::string::npos);
}

TEST_CASE("sources and contexts that nest too deeply are refused") {
  constexpr int kDeep = 100000;
  for (const std::string& source : {
           "{{ " + Repeat("(", kDeep) + "1" + Repeat(")", kDeep) + " }}",
           "{{ " + Repeat("[", kDeep) + Repeat("]", kDeep) + " }}",
           "{{ " + Repeat("{1:", kDeep) + "1" + Repeat("}", kDeep) + " }}",
           "{{ " + Repeat("not ", kDeep) + "1 }}",
           "{{ " + Repeat("-", kDeep) + "1 }}",
           "{{ 1" + Repeat(" + 1", kDeep) + " }}",
           "{{ 1" + Repeat(" if 1 else 1", kDeep) + " }}",
           "{{ x" + Repeat(".a", kDeep) + " }}",
           "{{ x" + Repeat("[0]", kDeep) + " }}",
           "{{ x" + Repeat("(1)", kDeep) + " }}",
           "{{ x" + Repeat("(x", kDeep) + Repeat(")", kDeep) + " }}",
           "{{ x" + Repeat("|upper", kDeep) + " }}",
           "{{ x" + Repeat(" is in [x", kDeep) + Repeat("]", kDeep) + " }}",
           Repeat("{% if 1 %}", kDeep) + Repeat("{% endif %}", kDeep),
           Repeat("{% for x in y %}", kDeep) + Repeat("{% endfor %}", kDeep),
           "{% set " + Repeat("(", kDeep) + "a" + Repeat(")", kDeep) + " = 1 %}",
           "{% filter upper" + Repeat("|upper", kDeep) + " %}{% endfilter %}",
       }) {
    INFO(source.substr(0, 40));
    const absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source);
    REQUIRE_FALSE(parsed.ok());
    CHECK(parsed.status().code() == absl::StatusCode::kInvalidArgument);
  }
  Json nested = 1;
  for (int i = 0; i < 1000; ++i) {
    nested = Json::array({std::move(nested)});
  }
  CHECK(ErrorOf("x", {{"messages", nested}}).find("nest") != std::string::npos);
}

TEST_CASE("what a chat really needs fits the limits by far") {
  Json messages = Json::array();
  for (int i = 0; i < 1000; ++i) {
    messages.push_back(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", Repeat("word ", 1000)}});
  }
  const auto segments = Segments(
      "{% for m in messages %}{% if '</think>' in m.content %}x{% endif %}<|{{ m.role }}|>"
      "{{ m.content.split('</think>')[-1].strip() | replace('a', 'b') }}<|end|>{% endfor %}",
      {{"messages", messages}});
  CHECK(Joined(segments).size() > 4'900'000);
}

TEST_CASE("one template renders in several threads at once") {
  const ChatTemplate shared = Parsed(
      "{% macro m(x) %}{{ x | upper }}{% endmacro %}"
      "{% for i in range(200) %}{{ m('a' ~ i ~ name) }}{% endfor %}");
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] {
      const auto segments = shared.RenderOrdered({{"name", "n"}}, kNow);
      results[t] = segments.ok() ? Joined(*segments) : "failed";
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(results[0].substr(0, 9) == "A0NA1NA2N");
  for (const std::string& result : results) {
    CHECK(result == results[0]);
  }
}

std::string Rendered(const absl::StatusOr<ChatTemplate>& loaded, const Json& context) {
  REQUIRE(loaded.status().ToString() == "OK");
  const auto segments = loaded->RenderOrdered(context, kNow);
  REQUIRE(segments.status().ToString() == "OK");
  return Joined(*segments);
}

TEST_CASE("a folder's template is found where Hugging Face keeps it") {
  const tests::TemporaryFolder folder;
  CHECK(ChatTemplate::Load(folder.path()).status().code() == absl::StatusCode::kNotFound);

  folder.Write("tokenizer_config.json",
               R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null,
                   "chat_template": "config{{ bos_token }}{{ eos_token }}{{ pad_token }}"})");
  folder.Write("special_tokens_map.json", R"({"eos_token": "other", "unk_token": "<unk>"})");
  CHECK(Rendered(ChatTemplate::Load(folder.path()), Json::object()) == "config<s></s>");
  CHECK(Rendered(ChatTemplate::Load(folder.path()), {{"bos_token", "<b>"}}) == "config<b></s>");

  folder.Write("tokenizer_config.json",
               R"({"chat_template": [{"name": "default", "template": "plain"},
                                     {"name": "tool_use", "template": "with tools"},
                                     {"name": "rag", "template": "rag{{ unk_token }}"}]})");
  CHECK(Rendered(ChatTemplate::Load(folder.path()), Json::object()) == "plain");
  CHECK(Rendered(ChatTemplate::Load(folder.path()), {{"tools", nullptr}}) == "plain");
  CHECK(Rendered(ChatTemplate::Load(folder.path()), {{"tools", {1}}}) == "with tools");
  CHECK(Rendered(ChatTemplate::Load(folder.path(), "rag"), {{"tools", {1}}}) == "rag<unk>");
  CHECK(ChatTemplate::Load(folder.path(), "nope").status().code() == absl::StatusCode::kNotFound);

  folder.Write("chat_template.json", R"({"chat_template": "json"})");
  CHECK(Rendered(ChatTemplate::Load(folder.path()), Json::object()) == "json");

  folder.Write("chat_template.jinja", "file\n");
  CHECK(Rendered(ChatTemplate::Load(folder.path()), {{"tools", {1}}}) == "file");
  folder.Write("additional_chat_templates/tool_use.jinja", "extra");
  CHECK(Rendered(ChatTemplate::Load(folder.path()), {{"tools", {1}}}) == "extra");
}

TEST_CASE("a folder's bad template is refused with its file") {
  const tests::TemporaryFolder folder;
  const auto error = [&] {
    const auto loaded = ChatTemplate::Load(folder.path());
    CHECK(loaded.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(loaded.status().message());
  };
  folder.Write("tokenizer_config.json", "{\"chat_template\": ");
  CHECK(error().find("tokenizer_config.json is not a JSON object") != std::string::npos);
  folder.Write("tokenizer_config.json", R"({"chat_template": 5})");
  CHECK(error().find("chat_template must be a string or a list") != std::string::npos);
  folder.Write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  CHECK(error().find("chat_template must be a string or a list") != std::string::npos);
  folder.Write("tokenizer_config.json", R"({"chat_template": "\n{% include 'x' %}"})");
  CHECK(error().find("tokenizer_config.json: chat template line 2: the tag {% include %}") !=
        std::string::npos);
}

}  // namespace
}  // namespace tessera::coordinator
