// An answer whose form begins behind something that has none: the model's thinking, or is a call of
// a tool instead.
//
// Thread rule: pure functions. Adds rules to the grammar's text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "coordinator/grammar/grammar_text.h"

namespace tessera::coordinator {

// Any text that ends with the first of `marks`, none of which is anywhere else in it; or one
// without them. At least one; none is empty.
std::string TextUpTo(const std::vector<std::string>& marks, GrammarText* text);
std::string TextWithout(const std::vector<std::string>& marks, GrammarText* text);

struct AnswerStart {
  // How the model marks its thinking; no closing mark: it does not.
  std::string opening, closing;
  bool is_open = false;            // the answer begins within it, else may open it
  std::vector<std::string> calls;  // texts that begin a call of a tool, which may come instead
  // Adds the rules of calls that may come instead, and has their body; in place of `calls`.
  std::function<std::string(GrammarText* text)> held_calls = nullptr;
  bool calls_in_thinking = false;  // what never leaves thinking may be one
};

// `form`, a body, with what may stand before it or in its place.
std::string BehindStart(const AnswerStart& start, const std::string& form, GrammarText* text);

}  // namespace tessera::coordinator
