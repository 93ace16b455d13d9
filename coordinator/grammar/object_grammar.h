// The members of an object as a grammar: declared ones in their order, some optional, then others.
//
// Thread rule: pure functions. Adds rules to the grammar's text.
#pragma once

#include <string>
#include <vector>

#include "coordinator/grammar/code_points.h"
#include "coordinator/grammar/grammar_text.h"
#include "coordinator/grammar/json_grammar.h"

namespace tessera::coordinator {

struct ObjectMember {
  std::string name;
  std::string value;  // its rule
  bool required = false;
};

// Members beside the declared ones; each `member` is a rule of a key, a colon and a value.
struct OtherMembers {
  std::string member;  // empty: there are none
  int max = -1;        // -1: no limit
  // An object has at least one member, of these or declared.
  bool needs_one = false;
};

std::string ObjectBody(const std::vector<ObjectMember>& declared, const OtherMembers& others,
                       const JsonGrammar& json, GrammarText* text);

// A rule of a key of these characters that is none of `names`. No escape writes a character that
// needs none.
std::string KeyBeside(const std::vector<std::string>& names, GrammarText* text,
                      const CodePoints& characters = CodePoints::All());

}  // namespace tessera::coordinator
