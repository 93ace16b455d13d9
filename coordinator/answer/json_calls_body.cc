#include "coordinator/answer/json_calls_body.h"

#include <string>

#include "absl/strings/ascii.h"
#include "coordinator/answer/json_call_reader.h"

namespace tessera::coordinator {
namespace {

class JsonCallsBody final : public CallBody {
 public:
  explicit JsonCallsBody(const JsonCallsOptions& options)
      : options_(options),
        at_(options.in_list ? At::kListStart : At::kStart),
        in_list_(options.in_list),
        reader_(options.known),
        closing_(options.closing) {}

  State Byte(char c, AnswerEvents& out) override {
    if (at_ == At::kCall) return CallByte(c, out);
    if (at_ == At::kBehind) return ByteBehind(c, out);
    if (absl::ascii_isspace(c)) return State::kOpen;
    switch (at_) {
      case At::kStart:
        if (c != '[') return Begin(c, out);
        in_list_ = true;
        at_ = At::kListStart;
        return State::kOpen;
      case At::kListStart:
      case At::kItem: return Begin(c, out);
      case At::kBetween:
        if (c != ',' && c != ']') return State::kNone;
        at_ = c == ',' ? At::kItem : At::kBehind;
        return State::kOpen;
      default: return State::kNone;
    }
  }

  bool Finish(AnswerEvents&) override { return at_ == At::kBehind || at_ == At::kBetween; }

 private:
  enum class At { kStart, kListStart, kCall, kBetween, kItem, kBehind };

  State Begin(char c, AnswerEvents& out) {
    reader_ = JsonCallReader(options_.known);
    at_ = At::kCall;
    return CallByte(c, out);
  }

  State CallByte(char c, AnswerEvents& out) {
    switch (reader_.Byte(c, out)) {
      case JsonScanner::State::kOpen: return State::kOpen;
      case JsonScanner::State::kBroken: return State::kNone;
      case JsonScanner::State::kComplete: break;
    }
    at_ = in_list_ ? At::kBetween : At::kBehind;
    closing_ = ClosingMarker(options_.closing);
    return State::kOpen;
  }

  State ByteBehind(char c, AnswerEvents& out) {
    if (!in_list_ && closing_.blank()) {
      if (c == '{') return Begin(c, out);
      if (options_.separator != 0 && c == options_.separator) return State::kOpen;
    }
    if (closing_.Byte(c)) return closing_.complete() ? State::kDone : State::kOpen;
    // White space may yet come before another call.
    if (closing_.blank()) return State::kOpen;
    unread_ = closing_.held();
    return State::kDone;
  }

  const JsonCallsOptions options_;
  At at_;
  bool in_list_;
  JsonCallReader reader_;
  ClosingMarker closing_;
};

}  // namespace

std::unique_ptr<CallBody> MakeJsonCallsBody(const JsonCallsOptions& options) {
  return std::make_unique<JsonCallsBody>(options);
}

}  // namespace tessera::coordinator
