// Reads one tool call that is a JSON object, {"name": ..., "arguments": {...}}, byte by byte: the
// bytes of the arguments go out as they come once the name is known.
//
// Thread rule: one thread at a time.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "coordinator/answer/answer_events.h"
#include "coordinator/answer/json_scanner.h"
#include "coordinator/answer/tool_schemas.h"

namespace tessera::coordinator {

class JsonCallReader {
 public:
  // With `known`, the object is a call only if it has the name of one of those functions, has
  // arguments, and no members but a call's: for formats that mark calls by nothing else.
  explicit JsonCallReader(const ToolSchemas* known = nullptr) : known_(known) {}

  // The next byte; kComplete: the call has ended, whole. kBroken: it is no call, and what it has
  // put out is for the caller to take back.
  JsonScanner::State Byte(char c, AnswerEvents& out);

 private:
  // Where the scanner is before a byte.
  struct Before {
    bool key, value, string;
    size_t depth;
  };

  bool ValueByte(char c, const Before& before, AnswerEvents& out);
  bool EndKey();
  bool EndValue(AnswerEvents& out);
  bool EndObject(AnswerEvents& out);
  void Begin(AnswerEvents& out);

  const ToolSchemas* known_;
  JsonScanner scanner_;
  std::string key_;    // quoted, while it is read
  std::string value_;  // of the member that is read, where it does not go out at once
  std::string name_;
  std::string held_;  // arguments that came before the name
  bool in_key_ = false;
  bool in_value_ = false;
  bool passes_on_ = false;  // the value that is read goes out
  bool begun_ = false;
  bool has_arguments_ = false;
};

}  // namespace tessera::coordinator
