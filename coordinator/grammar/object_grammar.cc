#include "coordinator/grammar/object_grammar.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/tokenizer/text/utf8.h"

namespace tessera::coordinator {
namespace {

// Names by their characters.
struct NameTree {
  bool is_name = false;
  std::map<char32_t, std::unique_ptr<NameTree>> next;
};

void AddName(const std::string& name, NameTree* tree) {
  for (size_t at = 0; at < name.size();) {
    std::unique_ptr<NameTree>& next = tree->next[NextCodePoint(name, &at)];
    if (next == nullptr) next = std::make_unique<NameTree>();
    tree = next.get();
  }
  tree->is_name = true;
}

// What may follow in a key of these `characters` that has come to `tree`, up to its quotation mark.
std::string RestOfKey(const NameTree& tree, const CodePoints& characters, const std::string& any,
                      GrammarText* text) {
  std::vector<std::string> ways;
  if (!tree.is_name) ways.push_back("\"\\\"\"");
  CodePoints taken;
  for (const auto& [code_point, next] : tree.next) {
    if (!characters.Has(code_point)) continue;
    taken.Add(code_point, code_point);
    ways.push_back(absl::StrCat(CodePoints::Of(code_point, code_point).InJsonString(), " ",
                                RestOfKey(*next, characters, any, text)));
  }
  const CodePoints others = taken.Complement().Within(characters);
  if (others.CountWaysInJsonString() > 0) ways.push_back(others.InJsonStringThen(any));
  return text->Add(absl::StrJoin(ways, " | "));
}

}  // namespace

std::string KeyBeside(const std::vector<std::string>& names, GrammarText* text,
                      const CodePoints& characters) {
  NameTree tree;
  for (const std::string& name : names) AddName(name, &tree);
  const std::string any =
      text->AddRecursive(absl::StrCat(R"("\"" | )", characters.InJsonStringThen("REST")), "REST");
  return text->Add(absl::StrCat("\"\\\"\" ", RestOfKey(tree, characters, any, text)));
}

// From the last member to the first: what follows where something stands before it, and where
// nothing does.
std::string ObjectBody(const std::vector<ObjectMember>& declared, const OtherMembers& others,
                       const JsonGrammar& json, GrammarText* text) {
  const std::string comma = absl::StrCat(json.space(), " \",\" ", json.space(), " ");
  // Empty: nothing may.
  std::string behind = "\"\"", first = others.needs_one ? "" : "\"\"";
  if (!others.member.empty()) {
    const std::string more = others.max < 0 ? "*" : absl::StrCat("{0,", others.max - 1, "}");
    const std::string list = absl::StrCat(others.member, " (", comma, others.member, ")", more);
    first = text->Add(others.needs_one ? list : absl::StrCat("(", list, ")?"));
    behind = text->Add(absl::StrCat("(", comma, others.member, ")*"));
  }
  for (auto member = declared.rbegin(); member != declared.rend(); ++member) {
    const std::string name = nlohmann::json(member->name).dump();
    const std::string own = text->Add(
        absl::StrCat(GrammarText::Quoted(name), " \":\" ", json.space(), " ", member->value));
    const std::string after = absl::StrCat(own, " ", behind);
    if (member->required) {
      first = text->Add(after);
      behind = text->Add(absl::StrCat(comma, after));
    } else {
      first = text->Add(first.empty() ? after : absl::StrCat(after, " | ", first));
      behind = text->Add(absl::StrCat("(", comma, own, ")? ", behind));
    }
  }
  return absl::StrCat("\"{\" ", json.space(), " ", first, " ", json.space(), " \"}\"");
}

}  // namespace tessera::coordinator
