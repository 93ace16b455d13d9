// What a model's answer says, piece by piece: text, thinking and tool calls, in the order in which
// the model wrote them.
//
// Pieces of one kind that follow each other are one event, so that events do not depend on how the
// answer was cut: the events of any two cuts are equal once those of one kind are joined.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::coordinator {

struct AnswerEvent {
  enum class Kind : uint8_t {
    kText,
    kThinking,
    kCall,       // a call begins; `text` is the function's name
    kArguments,  // more of its arguments, which joined are a JSON object
    kCallEnd,
    // The call that has begun turns out to be none; `text` is all that the model wrote of it,
    // markers included.
    kCallBroken,
  };
  Kind kind = Kind::kText;
  std::string text;

  friend bool operator==(const AnswerEvent&, const AnswerEvent&) = default;
};

class AnswerEvents {
 public:
  void Text(std::string_view text) { Add(AnswerEvent::Kind::kText, text); }
  void Thinking(std::string_view text) { Add(AnswerEvent::Kind::kThinking, text); }
  void BeginCall(std::string_view name) {
    in_call_ = true;
    events_.push_back({AnswerEvent::Kind::kCall, std::string(name)});
  }
  void Arguments(std::string_view text) { Add(AnswerEvent::Kind::kArguments, text); }
  void EndCall() {
    in_call_ = false;
    ++calls_;
    events_.push_back({AnswerEvent::Kind::kCallEnd, ""});
  }
  void BreakCall(std::string written) {
    in_call_ = false;
    events_.push_back({AnswerEvent::Kind::kCallBroken, std::move(written)});
  }

  bool in_call() const { return in_call_; }
  int64_t calls() const { return calls_; }  // that have ended, whole
  // Since the last Take.
  std::vector<AnswerEvent> Take() { return std::exchange(events_, {}); }

 private:
  void Add(AnswerEvent::Kind kind, std::string_view text) {
    if (text.empty()) return;
    if (events_.empty() || events_.back().kind != kind) events_.push_back({kind, ""});
    events_.back().text += text;
  }

  std::vector<AnswerEvent> events_;
  int64_t calls_ = 0;
  bool in_call_ = false;
};

}  // namespace tessera::coordinator
