// The text of one answer -> text, thinking and tool calls: first thinking is split off, then calls
// are looked for in what follows it.
//
// A pure function of the bytes: however they are cut, the events are the same (answer_events.h).
// White space around thinking is markup. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/answer/answer_events.h"
#include "coordinator/answer/call_formats.h"
#include "coordinator/answer/call_parser.h"
#include "coordinator/answer/thinking_format.h"
#include "coordinator/answer/tool_schemas.h"

namespace tessera::coordinator {

// What an answer is read by. Immutable; shared by the choices of a request.
struct AnswerFormat {
  const CallFormat* calls = nullptr;  // null: calls are text
  ToolSchemas schemas;
  ThinkingFormat thinking;  // without marks, or kClosed: it is text
  PromptThinking at_start = PromptThinking::kNone;
  std::string prefix;                    // of the answer, which the prompt has already
  bool one_call = false;                 // what comes behind the first call is dropped
  int64_t earlier_calls = 0;             // of the conversation
  std::function<std::string()> draw_id;  // letters and digits, 9 or more, unlike any other
};

class AnswerParser {
 public:
  // `format` must live as long.
  explicit AnswerParser(const AnswerFormat& format);

  std::vector<AnswerEvent> Append(std::string_view text);
  std::vector<AnswerEvent> Finish(AnswerEnd end);

 private:
  enum class At { kStart, kThinking, kBehind, kAnswer };

  void Byte(char c);
  void ThinkingByte(char c);
  void Pass(std::string_view text);
  bool MayBecome(std::string_view marker) const { return marker.starts_with(held_); }
  void PutThinking(std::string_view text);

  const AnswerFormat& format_;
  AnswerEvents out_;
  std::unique_ptr<CallParser> calls_;
  At at_;
  std::string held_;        // may become a marker
  std::string space_;       // of thinking: waits for what follows it
  bool line_start_ = true;  // of thinking
  bool any_thinking_ = false;
};

}  // namespace tessera::coordinator
