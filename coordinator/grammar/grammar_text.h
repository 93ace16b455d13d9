// Writes a grammar, rule by rule, in xgrammar's EBNF: alternatives with |, classes in [], (...)? *
// + {m,n}, "quoted" texts.
//
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tessera::coordinator {

class GrammarText {
 public:
  // A rule with that body; equal bodies share one. Returns its name.
  std::string Add(const std::string& body);
  // The same for a body that refers to itself as `self`.
  std::string AddRecursive(const std::string& body, std::string_view self);
  // A rule whose body comes later, for what refers to itself.
  std::string Declare();
  void Define(const std::string& name, const std::string& body);

  size_t size_bytes() const { return rules_.size(); }
  // All rules, and the first, whose body is `root`.
  std::string WithRoot(const std::string& root) const;

  // A text, of well-formed UTF-8, as a grammar quotes it.
  static std::string Quoted(std::string_view text);
  // A code point as it stands in a class.
  static std::string InClass(char32_t code_point);

 private:
  std::string rules_;
  std::unordered_map<std::string, std::string> name_of_body_;
  int count_ = 0;
};

}  // namespace tessera::coordinator
