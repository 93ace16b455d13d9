// Grammars have no bytes that are no UTF-8, in whatever way they write a character: of such bytes
// readers make several characters, or none.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "coordinator/grammar/answer_grammar.h"
#include "tests/catch_skip.h"
#include "tests/coordinator/grammar/grammar_probe.h"

namespace tessera::coordinator {
namespace {

using tests::GrammarProbe;

// One to four bytes: each kind of first byte, then the ends of the ranges of further ones.
std::vector<std::string> ByteSequences() {
  std::vector<std::string> all, longest;
  for (const int first : {0x41, 0x7F, 0x80, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC,
                          0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF7, 0xF8, 0xFF}) {
    longest.assign(1, std::string(1, static_cast<char>(first)));
    for (int bytes = 1; bytes <= 4; ++bytes) {
      all.insert(all.end(), longest.begin(), longest.end());
      std::vector<std::string> longer;
      for (const std::string& start : longest) {
        for (const int next : {0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0})
          longer.push_back(start + static_cast<char>(next));
      }
      longest = std::move(longer);
    }
  }
  return all;
}

// As Unicode's table of well-formed sequences has them.
bool IsOneCharacter(std::string_view bytes) {
  const auto within = [&](size_t i, int low, int high) {
    const int byte = static_cast<unsigned char>(bytes[i]);
    return low <= byte && byte <= high;
  };
  for (size_t i = 2; i < bytes.size(); ++i) {
    if (!within(i, 0x80, 0xBF)) return false;
  }
  switch (bytes.size()) {
    case 1: return within(0, 0, 0x7F);
    case 2: return within(0, 0xC2, 0xDF) && within(1, 0x80, 0xBF);
    case 3:
      return within(0, 0xE0, 0xEF) &&
             within(1, within(0, 0xE0, 0xE0) ? 0xA0 : 0x80, within(0, 0xED, 0xED) ? 0x9F : 0xBF);
    case 4:
      return within(0, 0xF0, 0xF4) &&
             within(1, within(0, 0xF0, 0xF0) ? 0x90 : 0x80, within(0, 0xF4, 0xF4) ? 0x8F : 0xBF);
    default: return false;
  }
}

bool IsText(std::string_view bytes) {
  if (bytes.empty()) return true;
  for (size_t size = 1; size <= bytes.size(); ++size) {
    if (IsOneCharacter(bytes.substr(0, size)) && IsText(bytes.substr(size))) return true;
  }
  return false;
}

struct Form {
  std::string grammar, before, behind;
  bool one = true;  // character; false: any text
};

std::string OfSchema(const char* schema) {
  const auto grammar =
      AnswerGrammar::OfSchema(nlohmann::ordered_json::parse(schema), SchemaMode::kStrict);
  REQUIRE(grammar.ok());
  return grammar->Text();
}

void Check(const std::vector<Form>& forms) {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const std::vector<std::string> sequences = ByteSequences();
  for (const Form& form : forms) {
    CAPTURE(form.grammar);
    const auto probe = GrammarProbe::Create(form.grammar);
    INFO(probe.status());
    REQUIRE(probe.ok());
    std::vector<std::string> wrong;
    for (const std::string& bytes : sequences) {
      const bool expected = form.one ? IsOneCharacter(bytes) : IsText(bytes);
      if (probe->Accepts(form.before + bytes + form.behind) != expected)
        wrong.push_back(absl::BytesToHexString(bytes));
    }
    CHECK(wrong == std::vector<std::string>());
  }
}

TEST_CASE("strings of schemas are UTF-8, with lengths and patterns too") {
  const auto x = [](size_t count) { return std::string(count, 'x'); };
  Check({
      {OfSchema(R"({"type":"string"})"), "\"", "\"", false},
      {OfSchema(R"({"type":"object","additionalProperties":true})"), "{\"", "\":1}", false},
      {OfSchema(R"({"type":"string","minLength":1,"maxLength":1})"), "\"", "\""},
      {OfSchema(R"({"type":"string","minLength":60,"maxLength":60})"), "\"" + x(30), x(29) + "\""},
      {OfSchema(R"({"type":"string","minLength":300,"maxLength":300})"), "\"" + x(20),
       x(279) + "\""},
      {OfSchema(R"({"type":"string","pattern":"^[^a]$"})"), "\"", "\""},
      {OfSchema(R"({"type":"string","pattern":"^x{140}[^a]$"})"), "\"" + x(140), "\""},
      {OfSchema(R"({"type":"string","pattern":"^x"})"), "\"x", "\"", false},
  });
}

TEST_CASE("characters of patterns and grammars that clients give are UTF-8") {
  Check({
      {AnswerGrammar::OfRegex("[^a]")->Text(), "", ""},
      {AnswerGrammar::OfRegex(".")->Text(), "", ""},
      {"root ::= [^a]", "", ""},
      {"root ::= [^a]* \"a\"", "", "a", false},
      {"root ::= [\\u0040-\\U0010ffff]", "", ""},
      {"root ::= Regex(\"[^a]\")", "", ""},
      {"root ::= Regex(\".\")", "", ""},
  });
}

}  // namespace
}  // namespace tessera::coordinator
