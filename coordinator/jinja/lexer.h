// Template source to tokens: text, tags and what is inside them, white space control applied.
//
// Follows Jinja with trim_blocks and lstrip_blocks: a block's or comment's line break after it and
// the indentation before it go, `-` strips all white space on that side, `+` keeps it. Line breaks
// become \n; one at the very end is dropped. Pure function; errors are InvalidArgument with the
// line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

enum class TokenType : uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  // text is the operator itself
  kEnd,
};

struct Token {
  TokenType type;
  int line;          // from 1
  std::string text;  // of data, names, strings (unescaped) and operators
  Int integer = 0;   // of kInteger
  double real = 0;   // of kFloat

  bool Is(TokenType wanted, std::string_view wanted_text) const {
    return type == wanted && text == wanted_text;
  }
  bool IsOperator(std::string_view wanted) const { return Is(TokenType::kOperator, wanted); }
  bool IsName(std::string_view wanted) const { return Is(TokenType::kName, wanted); }
};

// Ends with a kEnd token. `source` must be valid UTF-8.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// The error every refusal of a template starts with.
absl::Status SyntaxError(int line, std::string_view reason);

}  // namespace tessera::coordinator::jinja
