// Which texts the grammars of schemas have, and which keywords are refused.
#include "coordinator/grammar/schema_grammar.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coordinator/grammar/answer_grammar.h"
#include "tests/catch_skip.h"
#include "tests/coordinator/grammar/grammar_probe.h"

namespace tessera::coordinator {
namespace {

using Schema = nlohmann::ordered_json;
using tests::GrammarProbe;

struct Case {
  const char* schema;
  std::vector<std::string> has;
  std::vector<std::string> has_not;
};

std::string GrammarOf(const char* schema, SchemaMode mode = SchemaMode::kStrict) {
  const auto grammar = AnswerGrammar::OfSchema(Schema::parse(schema), mode);
  INFO(grammar.status());
  REQUIRE(grammar.ok());
  return grammar->Text();
}

void Check(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    CAPTURE(one.schema);
    const std::string grammar = GrammarOf(one.schema);
    CAPTURE(grammar);
    const auto probe = GrammarProbe::Create(grammar);
    INFO(probe.status());
    REQUIRE(probe.ok());
    for (const std::string& text : one.has) {
      CAPTURE(text);
      CHECK(probe->Accepts(text));
    }
    for (const std::string& text : one.has_not) {
      CAPTURE(text);
      CHECK_FALSE(probe->Accepts(text));
    }
  }
}

std::string Refusal(const char* schema) {
  const auto grammar = AnswerGrammar::OfSchema(Schema::parse(schema), SchemaMode::kStrict);
  CAPTURE(schema);
  REQUIRE_FALSE(grammar.ok());
  CHECK(grammar.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(grammar.status().message());
}

TEST_CASE("objects have the declared members in their order, and others only where asked for") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Check({
      {R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"string"}},
           "required":["b","a"]})",
       {R"({"b":1,"a":"x"})", "{ \"b\": 1, \"a\": \"x\" }", "{\n  \"b\": 1,\n  \"a\": \"x\"\n}"},
       {R"({"a":"x","b":1})", R"({"b":1})", R"({"b":1,"a":"x","c":2})", "{}", R"({"b":1,"a":"x"} )",
        "{\n\n\"b\":1,\"a\":\"x\"}"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},
           "c":{"type":"null"}},"required":["b"]})",
       {R"({"b":null})", R"({"a":null,"b":null})", R"({"b":null,"c":null})",
        R"({"a":null,"b":null,"c":null})"},
       {R"({"a":null})", R"({"a":null,"c":null})", R"({,"b":null})", R"({"b":null,})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"}},
           "additionalProperties":{"type":"boolean"}})",
       {"{}", R"({"a":1})", R"({"ab":true})", R"({"a":1,"b":true,"":false})"},
       {R"({"a":true})", R"({"b":1})", R"({"\u0061":true})", R"({"b":true,"a":1})"}},
      {R"({"type":"object","required":["a"]})", {R"({"a":[1,{}]})"}, {"{}", R"({"b":1})"}},
      {R"({"type":"object"})", {"{}", R"({"x":{"y":[]}})"}, {"[]", "1"}},
      {R"({"type":"object","patternProperties":{"^x-":{"type":"integer"}}})",
       {"{}", R"({"x-a":1,"x-":2})"},
       {R"({"a":1})", R"({"x-a":"1"})"}},
      // Other keys than the declared one.
      {R"({"type":"object","properties":{"v":{"type":"integer"}},"additionalProperties":false,
           "patternProperties":{"^.+$":{"type":"integer","minimum":0}}})",
       {"{}", R"({"v":1})", R"({"v":1,"w":2})", R"({"vv":3,"va":0})", R"({"é\t":1})"},
       {R"({"v":-1})", R"({"w":"x"})", R"({"w":1,"v":2})", R"({"v":1,"v":2})", R"({"\n":1})",
        R"({"":1})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b-":{"type":"null"}},
           "patternProperties":{"^[a-c_]*$":{"type":"null"}}})",
       {R"({"a":null,"b-":null,"ab":null,"_":null})"},
       {R"({"b--":null})", R"({"d":null})", R"({"b-":null,"a":null})", R"({"":null})"}},
      // None, where their number is bounded, where anchors stand within, and of what JSON escapes.
      {R"({"type":"object","properties":{"v":{"type":"integer"}},"maxProperties":5,
           "patternProperties":{"^.+$":{"type":"integer"}}})",
       {R"({"v":1})"},
       {R"({"v":1,"w":2})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":false,
           "patternProperties":{"^([a-z]$)+$":{"type":"null"}}})",
       {R"({"a":null})"},
       {R"({"ab":null})"}},
      {R"({"type":"object","properties":{"\u000e":{"type":"null"}},
           "patternProperties":{"^[\u000e-\u001f]+$":{"type":"null"}}})",
       {R"({"\u000e":null})"},
       {R"({"a":null})"}},
      {R"({"type":"object","propertyNames":{"enum":["a","b"]},"maxProperties":1})",
       {"{}", R"({"a":1})"},
       {R"({"c":1})", R"({"a":1,"b":1})"}},
      {R"({"properties":{"a":false,"b":{}},"type":"object"})",
       {"{}", R"({"b":[]})"},
       {R"({"a":1})"}},
  });
}

TEST_CASE("strings keep lengths, patterns and formats, and are JSON") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Check({
      {R"({"type":"string"})",
       {R"("")", R"("a\n\"\\\u00e9")", "\"é日\"", R"("\ud83d\ude00")"},
       {"\"\n\"", "\"\t\"", R"("\ud83d")", R"("\ude00")", R"("\x")", "\"\x01\"", "\"a"}},
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("\"é\n")", R"("\ud83d\ude00x")"},
       {R"("a")", R"("abcd")", "\"a\tb\"", R"("\ud83d\ude00")"}},
      {R"({"pattern":"^[a-c]+\\.\\d{2,3}$"})",
       {R"("a.12")", R"("abc.123")"},
       {R"("d.12")", R"("a.1")", R"("a.1234")", R"("xa.12")"}},
      {R"({"type":"string","pattern":"b.d"})",
       {R"("bxd")", R"("aabxdcc")", R"("\nb\"d")"},
       {R"("bd")", R"("b\nd")", R"("abc")"}},
      {R"({"type":"string","pattern":"^(a|bc)?\"\\\\[^x]$"})",
       {R"("a\"\\y")", R"("\"\\\n")"},
       {R"("a\"\\x")", R"("c\"\\y")"}},
      {R"({"type":"string","pattern":"^[a-z]*$","minLength":1,"maxLength":2})",
       {R"("a")", R"("ab")"},
       {R"("")", R"("abc")"}},
      {R"({"type":"string","pattern":"^[A-Z_][a-z]*\\d$","minLength":3,"maxLength":4})",
       {R"("Ab1")", R"("_bc2")"},
       {R"("A1")", R"("Abcd1")", R"("Abc")"}},
      {R"({"type":"string","pattern":"^a$|^b","title":"x"})", {R"("a")"}, {}},
      {R"({"type":"string","format":"date"})",
       {R"("2024-02-28")", R"("1999-12-31")"},
       {R"("2024-13-01")", R"("2024-02-30")", R"("24-01-01")"}},
      {R"({"type":"string","format":"ipv6"})",
       {R"("::1")", R"("2001:db8::ff00:42:8329")", R"("1:2:3:4:5:6:7:8")"},
       {R"("1:2:3:4:5:6:7:8:9")", R"("1::2::3")"}},
      {R"({"type":"string","format":"nobody-knows"})", {R"("x")"}, {"1"}},
  });
}

TEST_CASE("numbers keep bounds") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Check({
      {R"({"type":"integer"})", {"0", "-12", "123456789012345678"}, {"01", "1.0", "1e3", "+1"}},
      {R"({"type":"number"})", {"0.5", "-1e9", "1E+20", "12"}, {"1e400", ".5", "1.", "NaN"}},
      {R"({"type":"integer","minimum":-5,"maximum":105})",
       {"-5", "0", "9", "10", "99", "100", "105"},
       {"-6", "106", "110", "200", "1000"}},
      {R"({"type":"integer","exclusiveMinimum":0})", {"1", "99999999"}, {"0", "-1"}},
      {R"({"type":"integer","minimum":1.5,"maximum":3.5})", {"2", "3"}, {"1", "4"}},
      {R"({"type":"number","minimum":0,"maximum":1})",
       {"0", "1", "0.5", "0.000001"},
       {"1.5", "2", "1.0001"}},
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
       {"0.5", "0.001", "0.99"},
       {"0", "1", "0.0", "0.000", "1.0", "-0.5"}},
      {R"({"type":"number","minimum":-1.25,"maximum":0.7})",
       {"-1.25", "-1", "0", "0.70", "0.695", "-0.50", "-1.2499"},
       {"-1.26", "0.71", "0.701", "1", "-1.2501", "-2"}},
      {R"({"type":"number","minimum":-1.25,"exclusiveMaximum":0.75})",
       {"-1.2", "-0.1", "0.0", "0.7"},
       {"-1.3", "0.8", "0.75", "0.750"}},
      {R"({"type":"number","minimum":1e-9,"maximum":4.294967295})",
       {"1", "2.5", "0.1", "4.29", "4.294967295", "0.000000001"},
       {"0", "0.0", "4.3", "4.295", "4.294967296", "5"}},
      {R"({"type":"integer","multipleOf":7})", {"0", "7", "-14", "700"}, {"1", "13", "-1"}},
      {R"({"type":"number","minimum":0,"exclusiveMinimum":true})", {"0.1", "3"}, {"0", "-1"}},
  });
}

TEST_CASE("arrays keep counts and tuples") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Check({
      {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
       {"[1]", "[1, 2,3]"},
       {"[]", "[1,2,3,4]", "[true]", "[1,]"}},
      {R"({"items":{"type":"integer"}})", {"[]", "[1,2,3,4,5]"}, {"[\"a\"]"}},
      {R"({"prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},
           "minItems":1})",
       {"[1]", "[1,\"a\"]", "[1,\"a\",null,null]"},
       {"[]", "[\"a\"]", "[1,null]", "[1,\"a\",2]"}},
      {R"({"type":"array","items":[{"type":"integer"},{"type":"string"}],"additionalItems":false})",
       {"[]", "[1]", "[1,\"a\"]"},
       {"[1,\"a\",1]", "[\"a\"]"}},
      {R"({"type":"array","maxItems":0})", {"[]", "[ ]"}, {"[1]"}},
  });
}

TEST_CASE("schemas are joined: refs, allOf, anyOf with what stands beside them, enums with types") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Check({
      {R"({"$defs":{"a~/b":{"type":"integer"}},"$ref":"#/$defs/a~0~1b","minimum":5})",
       {"5", "77"},
       {"4", "\"5\""}},
      {R"({"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#"}},
           "required":["v"]})",
       {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":{"v":3}}})"},
       {R"({"v":1,"next":{}})"}},
      {R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},
                    {"properties":{"b":{"type":"null"}},"required":["b"]}]})",
       {R"({"a":1,"b":null})"},
       {R"({"a":1})", R"({"b":null})"}},
      {R"({"anyOf":[{"minimum":5},{"maximum":2}],"type":"integer"})", {"5", "2", "-1"}, {"3", "4"}},
      {R"({"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"integer"}},
             "required":["kind","x"]},
           {"type":"object","properties":{"kind":{"const":"b"}},"required":["kind"]}]})",
       {R"({"kind":"a","x":1})", R"({"kind":"b"})"},
       {R"({"kind":"b","x":1})", R"({"kind":"a"})"}},
      {R"({"type":"string","enum":["a",1,"é\"",null]})", {"\"a\"", R"("é\"")"}, {"1", "null"}},
      {R"({"const":{"b":[1,0.1],"a":null}})", {R"({"b":[1,0.1],"a":null})"}, {"{}"}},
      {R"({"type":["string","null"]})", {"null", "\"\""}, {"1"}},
      {R"({"title":"anything"})", {"1", "{}", "[null]", "\"a\""}, {"{", "nul"}},
  });
}

TEST_CASE("what a value is not, and what follows from something, is said by other keywords") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Check({
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},
           "not":{"required":["a","b"]}})",
       {"{}", R"({"a":null})", R"({"b":null})"},
       {R"({"a":null,"b":null})"}},
      {R"({"not":{"type":["object","array"]}})", {"1", "\"a\"", "null"}, {"{}", "[]"}},
      {R"({"type":"string","not":{"enum":["no","n"]}})",
       {"\"yes\"", "\"\"", "\"non\""},
       {"\"no\"", "\"n\"", R"("\u006e")"}},
      {R"({"enum":[1,2,3],"not":{"const":2}})", {"1", "3"}, {"2"}},
      {R"({"type":"number","not":{"minimum":5}})", {"4", "-1", "4.5"}, {"5", "6"}},
      {R"({"type":"object","properties":{"kind":{"enum":["a","b"]},"x":{"type":"null"}},
           "required":["kind"],"if":{"properties":{"kind":{"const":"a"}}},
           "then":{"required":["x"]},"else":{"properties":{"x":false}}})",
       {R"({"kind":"a","x":null})", R"({"kind":"b"})"},
       {R"({"kind":"a"})", R"({"kind":"b","x":null})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},
           "dependentRequired":{"a":["b"]}})",
       {"{}", R"({"b":null})", R"({"a":null,"b":null})"},
       {R"({"a":null})"}},
      {R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":1})",
       {R"(["a"])", R"(["b","c"])", R"(["a","b","c"])"},
       {"[]", R"(["a","a"])"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},
           "minProperties":1})",
       {R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null})"},
       {"{}"}},
      {R"({"type":"object","properties":{"x-a":{"minimum":3}},
           "patternProperties":{"^x-":{"type":"integer"}}})",
       {"{}", R"({"x-a":3})"},
       {R"({"x-a":2})", R"({"x-a":"3"})", R"({"x-b":1})"}},
      {R"({"enum":["a","abc",7],"maxLength":2})", {"\"a\"", "7"}, {"\"abc\""}},
  });
}

TEST_CASE("oneOf has the values that one of its schemas alone accepts") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Check({
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},
           "oneOf":[{"required":["a"]},{"required":["b"]}]})",
       {R"({"a":null})", R"({"b":null})"},
       {"{}", R"({"a":null,"b":null})"}},
      {R"({"oneOf":[{"enum":["vim","nano"]},{"type":"string"}]})",
       {R"("emacs")", R"("")"},
       {R"("vim")", R"("nano")", "1"}},
      {R"({"oneOf":[{"type":"array","items":{"type":"number"}},
                    {"type":"array","items":{"type":"string"}}]})",
       {"[1]", R"(["a","b"])"},
       {"[]", R"([1,"a"])"}},
      {R"({"oneOf":[{"type":"object","required":["type"],"properties":{"type":{"enum":["git"]}}},
           {"type":"object","additionalProperties":{"enum":[false]},"minProperties":1,
            "maxProperties":1}]})",
       {R"({"type":"git"})", R"({"x":false})"},
       {R"({"type":false,"x":false})", R"({"type":"svn"})", "{}"}},
  });
}

TEST_CASE("patterns with anchors in a group, without an empty text, and for several keys") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Check({
      {R"x({"pattern":"^$|(^(?:\\S+ ){0,2}\\S+$)"})x",
       {R"("")", R"("a")", R"("a bc d")"},
       {R"(" ")", R"("a b c d")", R"("a ")"}},
      {R"x({"pattern":"(^Hpt_|^Int_|_Armour_)"})x",
       {R"("Hpt_x")", R"("Int_")", R"("a_Armour_b")"},
       {R"("aHpt_")", R"("Armour")", R"("")"}},
      {R"x({"type":"string","minLength":1,"pattern":"^([0-9]+y)?([0-9]+w)?([0-9]{0,2})$"})x",
       {R"("1y")", R"("10w")", R"("1y2w33")", R"("7")"},
       {R"("")", R"("y")", R"("1w2y")", R"("123")"}},
      {R"({"type":"string","minLength":1,"not":{"enum":["no"]}})",
       {R"("yes")", R"("n")"},
       {R"("")", R"("no")"}},
      {R"({"type":"object",
           "patternProperties":{"^x_.*":{"type":"integer"},"^y_?":{"type":"null"}}})",
       {R"({"x_a":1,"y":null})", R"({"y_":null})"},
       {R"({"x_a":null})", R"({"y_a":1})", R"({"a":1})"}},
  });
  CHECK(Refusal(R"({"type":"object","patternProperties":{"^x":{"type":"integer"},"x$":{}}})")
            .find("of several schemas") != std::string::npos);
}

TEST_CASE("a long maxLength is held to the character") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  using Bounds = std::pair<size_t, size_t>;
  for (const auto& [min, max] :
       {Bounds(5, 39), Bounds(5, 40), Bounds(5, 41), Bounds(17, 100), Bounds(100, 101),
        Bounds(700, 1000), Bounds(700, 1001), Bounds(700, 2000), Bounds(700, 65535)}) {
    CAPTURE(min, max);
    const auto grammar = AnswerGrammar::OfSchema(
        Schema({{"type", "string"}, {"minLength", min}, {"maxLength", max}}), SchemaMode::kStrict);
    REQUIRE(grammar.ok());
    const auto probe = GrammarProbe::Create(grammar->Text());
    INFO(probe.status());
    REQUIRE(probe.ok());
    for (const auto& [length, fits] : {std::pair<size_t, bool>(min - 1, false),
                                       {min, true},
                                       {max - 1, true},
                                       {max, true},
                                       {max + 1, false}}) {
      CAPTURE(length);
      CHECK(probe->Accepts('"' + std::string(length, 'a') + '"') == fits);
    }
    CHECK(probe->Accepts('"' + std::string(min - 3, 'a') + "\\n\\u00e9\\ud83d\\ude00\""));
    CHECK_FALSE(probe->Accepts('"' + std::string(min, 'a') + "\\ud83d\""));
    CHECK_FALSE(probe->Accepts('"' + std::string(min, 'a') + "\xED\xA0\x80\""));
    CHECK_FALSE(probe->Accepts('"' + std::string(min, 'a') + "\n\""));
  }
}

TEST_CASE("masks of long strings are right where a token runs over the end of a rule") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const std::vector<std::string> words = {"abcdef",      "abcdefghijklmnopqrstuvw",
                                          "abc\\n\\\"d", "日本日本日本",
                                          "abcde\"}",    std::string(40, 'a')};
  for (const char* schema :
       {R"({"type":"string","maxLength":100})",
        R"({"type":"string","minLength":30,"maxLength":90})", R"({"type":"string","minLength":70})",
        R"({"type":"object","properties":{
                                 "a":{"type":"string","maxLength":60},
                                 "b":{"type":"string","minLength":50,"maxLength":60}},
                                 "required":["a","b"],"additionalProperties":false})"}) {
    CAPTURE(schema);
    const auto probe = GrammarProbe::Create(GrammarOf(schema), words);
    INFO(probe.status());
    REQUIRE(probe.ok());
    for (uint64_t seed = 0; seed < 2; ++seed) CHECK(probe->WrongBits(seed, 100, 23) == 0);
  }
}

TEST_CASE("rules that differ in the place of another rule alone have masks of their own") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const auto probe = GrammarProbe::Create(
      "root ::= \"1\" first | \"2\" second\n"
      "first ::= \"a\" rest | \"ab\" rest | \"abcd\"\n"
      "second ::= \"a\" rest | \"abc\" rest | \"abcd\"\n"
      "rest ::= \"x\" | \"y\" rest\n",
      {"bx", "bcx", "ax", "abx", "abcx", "abcd", "1a", "2a"});
  INFO(probe.status());
  REQUIRE(probe.ok());
  for (uint64_t seed = 0; seed < 20; ++seed) CHECK(probe->WrongBits(seed, 8, 23) == 0);
}

TEST_CASE("grammars of one vocabulary have masks of their own, whatever was compiled before") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  std::vector<std::string> grammars = {
      "root ::= \"1\" rule\nrule ::= \"a\" rest | \"ab\" rest | \"abcd\"\n"
      "rest ::= \"x\" | \"y\" rest\n",
      "root ::= \"1\" rule\nrule ::= \"a\" rest | \"abc\" rest | \"abcd\"\n"
      "rest ::= \"x\" | \"y\" rest\n",
      "root ::= rule \"1\"\nrule ::= \"a\" rest | \"ab\" rest | \"abcd\"\n"
      "rest ::= \"x\" | \"y\" rest\n"};
  for (const char* schema :
       {R"({"type":"string"})", R"({"type":"string","maxLength":40})",
        R"({"type":"string","maxLength":41})", R"({"type":"string","minLength":1,"maxLength":41})",
        R"({"type":"object","properties":{"a":{"type":"string","maxLength":40}},
            "required":["a"],"additionalProperties":false})",
        R"({"type":"array","items":{"type":"string","maxLength":40}})",
        R"({"type":"string","format":"date-time"})", R"({"type":"integer","minimum":7})",
        R"({"enum":["abc","abcd","x"]})", R"({"type":"object"})"}) {
    grammars.push_back(GrammarOf(schema));
  }
  // The first ones again, behind the others.
  for (size_t i = 0; i < 5; ++i) grammars.push_back(grammars[i] + " ");
  const auto probes = GrammarProbe::CreateAll(
      grammars, {"abcdef", "abx", "abcx", "abcd", "1a", "abc\"}", "abc\", \"", "日本日本"});
  INFO(probes.status());
  REQUIRE(probes.ok());
  for (size_t i = 0; i < probes->size(); ++i) {
    CAPTURE(grammars[i]);
    for (uint64_t seed = 0; seed < 3; ++seed) CHECK((*probes)[i].WrongBits(seed, 60, 23) == 0);
  }
}

TEST_CASE("a keyword that is not enforced is refused by its name and place") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const std::pair<const char*, const char*> cases[] = {
      {R"({"properties":{"a":{"items":{"not":{"pattern":"a"}}}}})",
       "of $.a[]: not is not enforced"},
      {R"({"type":"array","uniqueItems":true})", "uniqueItems"},
      {R"({"type":"array","contains":{}})", "contains"},
      {R"({"type":"object","dependentSchemas":{"a":5}})", "must be an object"},
      {R"({"if":{"pattern":"a"},"then":{"maxLength":3}})", "if"},
      {R"({"$ref":"https://example.com/a.json"})", "$ref"},
      {R"({"$ref":"#/$defs/none"})", "names nothing"},
      {R"({"pattern":"(?=a)b"})", "lookaround"},
      {R"({"pattern":"\\bword"})", "\\b is not enforced"},
      {R"({"pattern":"^(ab)+$","maxLength":3})", "minLength and maxLength"},
      {R"({"pattern":"^[\\x0e-\\x1f]$"})", "a control character"},
      {R"({"type":"number","multipleOf":0.3})", "multipleOf"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "oneOf"},
      {R"({"properties":{"a":{"type":"null"}},"unevaluatedProperties":false,
           "oneOf":[{"properties":{"b":{"const":"b"}},"required":["b"]},
                    {"properties":{"c":{"const":"c"}},"required":["c"]}]})",
       "oneOf"},
      {R"({"type":"object","minProperties":3})", "minProperties"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "no value satisfies"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "for ever"},
      {R"({"type":"nonsense"})", "type"},
      {R"({"allOf":[{"$ref":"#"}]})", "leads to itself"},
  };
  for (const auto& [schema, named] : cases) {
    const std::string refusal = Refusal(schema);
    CAPTURE(schema, refusal);
    CHECK(refusal.find(named) != std::string::npos);
  }
}

TEST_CASE("without strict such a keyword is left out and named") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const auto grammar = AnswerGrammar::OfSchema(
      Schema::parse(R"({"type":"array","uniqueItems":true,"items":{"type":"integer"}})"),
      SchemaMode::kLoose);
  REQUIRE(grammar.ok());
  REQUIRE(grammar->left_out().size() == 1);
  CHECK(grammar->left_out()[0].find("uniqueItems") != std::string::npos);
  const auto probe = GrammarProbe::Create(grammar->Text());
  REQUIRE(probe.ok());
  CHECK(probe->Accepts("[1,1]"));
  CHECK_FALSE(probe->Accepts("[true]"));
}

TEST_CASE("large and deep schemas are refused within a second, and what is taken is bounded") {
  const auto began = std::chrono::steady_clock::now();
  std::string deep = "{}";
  for (int i = 0; i < 300; ++i) deep = R"({"type":"array","items":)" + deep + "}";
  CHECK(Refusal(deep.c_str()).find("deeper than 32") != std::string::npos);
  const std::string large =
      R"({"type":"string","enum":[")" + std::string(kMaxSchemaBytes, 'x') + "\"]}";
  CHECK(Refusal(large.c_str()).find("larger than") != std::string::npos);
  std::string wide = R"({"type":"object","properties":{)";
  for (int i = 0; i < 11'000; ++i) {
    const std::string n = std::to_string(i);
    wide += (i > 0 ? ",\"" : "\"") + n + R"(":{"const":)" + n + "}";
  }
  wide += "}}";
  CHECK(Refusal(wide.c_str()).find("more than") != std::string::npos);
  CHECK(Refusal(R"({"type":"string","minLength":5000})").find("above 1000") != std::string::npos);
  std::string repeated = "a";
  for (int i = 0; i < 9; ++i) repeated = "(?:" + repeated + "){128}";
  const std::string never = R"({"type":"string","pattern":"^(?:)" + repeated + R"(){0}b$"})";
  CHECK_FALSE(Refusal(never.c_str()).empty());
  CHECK(Refusal(R"({"type":"string","maxLength":5000000})").find("above 1000000") !=
        std::string::npos);
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(4));  // all six
}

TEST_CASE("other forms, and what may stand before one or in its place") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const auto probe = [](const absl::StatusOr<AnswerGrammar>& grammar, const AnswerStart& start) {
    REQUIRE(grammar.ok());
    auto made = GrammarProbe::Create(grammar->Text(start));
    INFO(made.status());
    REQUIRE(made.ok());
    return *std::move(made);
  };
  const auto regex = AnswerGrammar::OfRegex("[A-Z]{2}\\n\\d+");
  CHECK(probe(regex, {}).Accepts("AB\n12"));
  CHECK_FALSE(probe(regex, {}).Accepts("xAB\n12"));
  const auto choices = AnswerGrammar::OfChoices({"yes", "no \"way\"\n"});
  CHECK(probe(choices, {}).Accepts("no \"way\"\n"));
  CHECK_FALSE(probe(choices, {}).Accepts("maybe"));
  CHECK_FALSE(AnswerGrammar::OfEbnf("nothing").ok());
  CHECK_FALSE(AnswerGrammar::OfRegex("(?!a)").ok());

  const auto object = AnswerGrammar::OfAnyObject();
  AnswerStart start = {.opening = "<think>", .closing = "</think>", .is_open = true, .calls = {}};
  const auto own = AnswerGrammar::OfEbnf("root ::= digit+\ndigit ::= [0-9]");
  CHECK(probe(own, start).Accepts("123"));
  const GrammarProbe open = probe(object, start);
  CHECK(open.Accepts("so </thin, <</think>\n\n{}"));
  CHECK_FALSE(open.Accepts("{}"));
  CHECK_FALSE(open.Accepts("a</think>b</think>{}"));
  start.is_open = false;
  const GrammarProbe may = probe(object, start);
  CHECK(may.Accepts("{}"));
  CHECK(may.Accepts("<think>\n{ </think>{}"));
  CHECK_FALSE(may.Accepts("think: {}"));
  CHECK_FALSE(may.Accepts("<call>1"));
  start.calls = {"<call>"};
  const GrammarProbe calls = probe(object, start);
  CHECK(calls.Accepts("<call>anything\n"));
  CHECK(calls.Accepts("<think></think>\n<call>"));
  CHECK(calls.Accepts("<think></think>{}"));
  CHECK_FALSE(calls.Accepts("call"));
  start = {
      .opening = "", .closing = "final:", .is_open = true, .calls = {}, .calls_in_thinking = true};
  const GrammarProbe channels = probe(object, start);
  CHECK(channels.Accepts("to=f {\"a"));
  CHECK(channels.Accepts("so. final:{}"));
  CHECK_FALSE(channels.Accepts("so. final:"));
  CHECK_FALSE(channels.Accepts("so. final:no"));
}

TEST_CASE("what a model of random weights writes under a schema ends and is JSON") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const char* const schemas[] = {
      R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},
          "age":{"type":"integer","minimum":0,"maximum":130},
          "tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":4}},
          "required":["name","age"]})",
      R"({"type":"array","items":{"type":"number","minimum":-0.5,"maximum":0.5},"maxItems":5})",
      R"({"type":"string","pattern":"^\"[\\s\\S]{1,9}\\\\$"})",
  };
  for (const char* schema : schemas) {
    CAPTURE(schema);
    const auto probe = GrammarProbe::Create(GrammarOf(schema));
    REQUIRE(probe.ok());
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const auto text = probe->RandomText(seed, 2000);
      REQUIRE(text.has_value());
      CAPTURE(*text);
      CHECK(nlohmann::json::accept(*text));
    }
  }
}

}  // namespace
}  // namespace tessera::coordinator
