// A stretch of a rendered chat prompt, marked with where it came from. The template renderer makes
// these and the tokenizer reads them: text of a user never yields the id of a special token,
// however it is spelled, while the template's own text does. Plain values; copy and share freely.
#pragma once

#include <string>

namespace tessera::coordinator {

struct TextSegment {
  std::string text;            // UTF-8
  bool from_template = false;  // false: a message, a tool result or any other input of a client

  friend bool operator==(const TextSegment&, const TextSegment&) = default;
};

}  // namespace tessera::coordinator
