#include "coordinator/grammar/grammar_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace tessera::coordinator {
namespace {

bool IsPlain(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

}  // namespace

std::string GrammarText::Add(const std::string& body) {
  const auto [it, inserted] = name_of_body_.try_emplace(body);
  if (inserted) {
    it->second = Declare();
    Define(it->second, body);
  }
  return it->second;
}

std::string GrammarText::AddRecursive(const std::string& body, std::string_view self) {
  const auto [it, inserted] = name_of_body_.try_emplace(body);
  if (inserted) {
    it->second = Declare();
    Define(it->second, absl::StrReplaceAll(body, {{std::string(self), it->second}}));
  }
  return it->second;
}

std::string GrammarText::Declare() { return absl::StrCat("r", ++count_); }

void GrammarText::Define(const std::string& name, const std::string& body) {
  absl::StrAppend(&rules_, name, " ::= ", body, "\n");
}

std::string GrammarText::WithRoot(const std::string& root) const {
  return absl::StrCat("root ::= ", root, "\n", rules_);
}

std::string GrammarText::Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7F) {
      quoted += absl::StrFormat("\\u%04x", byte);
    } else {
      quoted.push_back(c);
    }
  }
  return quoted + "\"";
}

std::string GrammarText::InClass(char32_t code_point) {
  if (IsPlain(code_point)) return std::string(1, static_cast<char>(code_point));
  return absl::StrFormat("\\U%08x", static_cast<uint32_t>(code_point));
}

}  // namespace tessera::coordinator
