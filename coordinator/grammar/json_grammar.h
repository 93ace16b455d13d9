// The parts of JSON that schemas are built of, as rules of one grammar.
//
// Texts hold no raw control character and no lone surrogate; a character is one code point or one
// whole escape. Between tokens is nothing, a space, or one line break with at most 12 blanks:
// without a bound models may write blanks for ever.
//
// Thread rule: one thread. Borrows the grammar's text.
#pragma once

#include <string>
#include <string_view>

#include "coordinator/grammar/grammar_text.h"

namespace tessera::coordinator {

class JsonGrammar {
 public:
  explicit JsonGrammar(GrammarText* text);

  const std::string& space() const { return space_; }
  const std::string& character() const { return character_; }
  const std::string& string() const { return string_; }
  std::string Value();   // any
  std::string Object();  // any
  std::string Array();   // any

 private:
  void DefineValues();

  GrammarText& text_;
  std::string space_, character_, string_, value_, object_, array_;
};

}  // namespace tessera::coordinator
