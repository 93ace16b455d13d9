#include "coordinator/answer/message_builder.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::coordinator {
namespace {

const AnswerFormat& Plain() {
  static const auto& plain = *new AnswerFormat();
  return plain;
}

}  // namespace

MessageBuilder::MessageBuilder(std::shared_ptr<const AnswerFormat> format)
    : format_(std::move(format)), parser_(format_ == nullptr ? Plain() : *format_) {}

std::vector<MessageDelta> MessageBuilder::Append(std::string_view text) {
  return Take(parser_.Append(text));
}

std::vector<MessageDelta> MessageBuilder::Finish(AnswerEnd end) {
  return Take(parser_.Finish(end));
}

std::string MessageBuilder::NewId(std::string_view name) const {
  switch (format_->calls->ids) {
    case CallIds::kNineCharacters: return format_->draw_id().substr(0, 9);
    case CallIds::kNamed:
      return absl::StrCat("functions.", std::string(name), ":",
                          format_->earlier_calls + begun_calls_);
    case CallIds::kOpenAi: break;
  }
  return absl::StrCat("call_", format_->draw_id());
}

std::vector<MessageDelta> MessageBuilder::Take(std::vector<AnswerEvent> events) {
  using Kind = AnswerEvent::Kind;
  std::vector<MessageDelta> deltas;
  for (AnswerEvent& event : events) {
    if (over_) break;
    switch (event.kind) {
      case Kind::kThinking:
        message_.thinking += event.text;
        deltas.push_back({MessageDelta::Kind::kThinking, std::move(event.text)});
        break;
      case Kind::kCallBroken: message_.calls.pop_back(); [[fallthrough]];
      case Kind::kText:
        message_.text += event.text;
        deltas.push_back({MessageDelta::Kind::kText, std::move(event.text)});
        break;
      case Kind::kCall: {
        const std::string id = NewId(event.text);
        message_.calls.push_back({id, event.text, ""});
        deltas.push_back({MessageDelta::Kind::kCall, std::move(event.text), begun_calls_++, id});
        break;
      }
      case Kind::kArguments:
        message_.calls.back().arguments += event.text;
        deltas.push_back({MessageDelta::Kind::kArguments, std::move(event.text), begun_calls_ - 1});
        break;
      case Kind::kCallEnd: over_ = format_->one_call; break;
    }
  }
  return deltas;
}

}  // namespace tessera::coordinator
