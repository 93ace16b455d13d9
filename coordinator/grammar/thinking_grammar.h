// An answer whose form begins behind the model's thinking.
//
// Thread rule: pure functions. Adds rules to the grammar's text.
#pragma once

#include <string>
#include <string_view>

#include "coordinator/grammar/grammar_text.h"

namespace tessera::coordinator {

// Any text that ends with `mark`, which is nowhere else in it. `mark` is not empty.
std::string TextUpTo(std::string_view mark, GrammarText* text);

enum class ThinkingPart {
  kOpen,  // the prompt has opened it: the answer begins within it
  kMay,   // the answer may open it
};

// Thinking between its marks, blanks, then `answer`.
std::string WithThinking(std::string_view opening, std::string_view closing, ThinkingPart part,
                         const std::string& answer, GrammarText* text);

}  // namespace tessera::coordinator
