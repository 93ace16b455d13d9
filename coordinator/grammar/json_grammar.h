// The parts of JSON that schemas are built of, as rules of one grammar.
//
// Texts hold no raw control character and no lone surrogate; a character is one code point or one
// whole escape. Between tokens is nothing, a space, or one line break with at most 12 blanks:
// without a bound models may write blanks for ever.
//
// Thread rule: one thread. Borrows the grammar's text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "coordinator/grammar/grammar_text.h"

namespace tessera::coordinator {

class JsonGrammar {
 public:
  explicit JsonGrammar(GrammarText* text);

  const std::string& space() const { return space_; }
  // Within a string: any characters, or none.
  const std::string& characters() const { return characters_; }
  const std::string& string() const { return string_; }
  // What is left of a string, up to its quotation mark.
  const std::string& rest() const { return rest_; }
  // A body of strings of so many characters; max -1: no limit.
  std::string StringOf(int64_t min, int64_t max);
  std::string Value();   // any
  std::string Object();  // any

 private:
  void DefineValues();
  // A rule of so many more characters and `end`, or, behind `max` of them, of one more and `then`.
  // A rule for each character: a token that runs over the end of a rule is looked at each time that
  // a mask is made, so rules that stand in several places are slow to follow.
  std::string Characters(int64_t min, int64_t max, std::string then, const std::string& end);
  // The same in units of 8 characters. Each is a rule of its own that stands in one place, and
  // says what may follow it: then tokens that run over its end are known at the compile, which
  // computes the masks of one unit for all of them. A rule for each character takes tens of
  // milliseconds with a vocabulary of 150,000.
  std::string Units(int64_t min, int64_t max, const std::string& then, const std::string& end);
  // A body of one more unit, and `then`.
  std::string UnitThen(const std::string& then);
  // A rule of 64 characters, which may stand in several places: long strings share it.
  const std::string& Block();

  GrammarText& text_;
  std::string space_, escape_, characters_, rest_, string_, value_, object_, block_;
  // Rules of Units, by its arguments.
  std::map<std::tuple<int64_t, int64_t, std::string, std::string>, std::string> units_;
};

}  // namespace tessera::coordinator
