#include "coordinator/answer/answer_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "coordinator/answer/trim.h"

namespace tessera::coordinator {

AnswerParser::AnswerParser(const AnswerFormat& format) : format_(format) {
  if (format.calls != nullptr) calls_ = format.calls->make_parser(format.schemas);
  const bool none = format.thinking.opening.empty() || format.at_start == PromptThinking::kClosed;
  at_ = none ? At::kAnswer : format.at_start == PromptThinking::kOpen ? At::kThinking : At::kStart;
  for (const char c : format.prefix) Byte(c);
}

std::vector<AnswerEvent> AnswerParser::Append(std::string_view text) {
  for (const char c : text) Byte(c);
  return out_.Take();
}

std::vector<AnswerEvent> AnswerParser::Finish(AnswerEnd end) {
  if (at_ == At::kThinking) {
    PutThinking(std::exchange(held_, ""));
  } else {
    Pass(std::exchange(held_, ""));
  }
  if (calls_ != nullptr) calls_->Finish(end, out_);
  return out_.Take();
}

void AnswerParser::Pass(std::string_view text) {
  if (calls_ != nullptr) {
    calls_->Append(text, out_);
  } else {
    out_.Text(text);
  }
}

void AnswerParser::Byte(char c) {
  switch (at_) {
    case At::kAnswer: return Pass({&c, 1});
    case At::kThinking: return ThinkingByte(c);
    case At::kBehind:
      if (absl::ascii_isspace(c)) return;
      at_ = At::kAnswer;
      return Pass({&c, 1});
    case At::kStart: break;
  }
  // White space, then the opening mark: else there is no thinking.
  held_.push_back(c);
  const std::string_view text = TrimLeft(held_);
  if (text == format_.thinking.opening) {
    held_.clear();
    at_ = At::kThinking;
  } else if (!std::string_view(format_.thinking.opening).starts_with(text)) {
    at_ = At::kAnswer;
    Pass(std::exchange(held_, ""));
  }
}

void AnswerParser::ThinkingByte(char c) {
  static const auto& none = *new std::vector<std::string>();
  const std::vector<std::string>& calls = format_.calls != nullptr ? format_.calls->opening : none;
  held_.push_back(c);
  while (!held_.empty()) {
    if (held_ == format_.thinking.closing) {
      held_.clear();
      space_.clear();
      at_ = At::kBehind;
      return;
    }
    // A call at a line's start ends thinking that was not closed; one within a line is quoted.
    if (line_start_ && std::find(calls.begin(), calls.end(), held_) != calls.end()) {
      space_.clear();
      at_ = At::kAnswer;
      Pass(std::exchange(held_, ""));
      return;
    }
    const bool waits = MayBecome(format_.thinking.closing) ||
                       (line_start_ && std::any_of(calls.begin(), calls.end(),
                                                   [&](const auto& m) { return MayBecome(m); }));
    if (waits) return;
    PutThinking(held_.substr(0, 1));
    held_.erase(0, 1);
  }
}

void AnswerParser::PutThinking(std::string_view text) {
  for (const char c : text) {
    if (absl::ascii_isspace(c)) {
      line_start_ = line_start_ || c == '\n';
      space_.push_back(c);
      continue;
    }
    line_start_ = false;
    if (std::exchange(any_thinking_, true)) out_.Thinking(space_);
    space_.clear();
    out_.Thinking({&c, 1});
  }
}

}  // namespace tessera::coordinator
