// The message that an answer becomes, as it grows: what a stream says of it piece by piece, and the
// whole at its end.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/answer/answer_parser.h"

namespace tessera::coordinator {

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON; of an answer that was cut, its beginning
};

struct AnswerMessage {
  std::string thinking;
  std::string text;
  std::vector<ToolCall> calls;
};

struct MessageDelta {
  enum class Kind { kText, kThinking, kCall, kArguments };
  Kind kind = Kind::kText;
  std::string text;     // more of text, thinking or arguments; the name of a call that begins
  int call = 0;         // its index
  std::string id = {};  // of a call that begins
};

class MessageBuilder {
 public:
  // Without a format all is text.
  explicit MessageBuilder(std::shared_ptr<const AnswerFormat> format);

  std::vector<MessageDelta> Append(std::string_view text);
  std::vector<MessageDelta> Finish(AnswerEnd end);

  // So far. A call that turned out to be none is text here; a stream has begun it and then says the
  // same as text.
  const AnswerMessage& message() const { return message_; }

 private:
  std::vector<MessageDelta> Take(std::vector<AnswerEvent> events);
  std::string NewId(std::string_view name) const;

  const std::shared_ptr<const AnswerFormat> format_;
  AnswerParser parser_;
  AnswerMessage message_;
  int begun_calls_ = 0;
  bool over_ = false;  // the one call has been made
};

}  // namespace tessera::coordinator
