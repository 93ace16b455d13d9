#include "coordinator/answer/call_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"

namespace tessera::coordinator {
namespace {

class MarkedCallParser final : public CallParser {
 public:
  MarkedCallParser(CallMarkers markers, CallBodyMaker make_body)
      : markers_(std::move(markers)), make_body_(std::move(make_body)) {}

  void Append(std::string_view text, AnswerEvents& out) override {
    for (const char c : text) Byte(c, out);
  }

  void Finish(AnswerEnd end, AnswerEvents& out) override {
    if (body_ != nullptr) {
      const bool whole = body_->Finish(out);
      if (out.calls() > calls_before_) written_.clear();
      if (!whole && !(end == AnswerEnd::kCut && out.in_call())) GiveUp(out);
      body_ = nullptr;
    }
    // White space behind the last call is the format's.
    if (out.calls() > 0 && held_.empty()) space_.clear();
    out.Text(space_ + held_);
  }

 private:
  void Byte(char c, AnswerEvents& out) {
    if (body_ == nullptr) return TextByte(c, out);
    const CallBody::State state = body_->Byte(c, out);
    if (out.calls() > calls_before_) {
      calls_before_ = out.calls();
      written_.clear();
    } else if (state != CallBody::State::kNone) {
      written_.push_back(c);
    }
    if (state == CallBody::State::kOpen) return;
    const std::unique_ptr<CallBody> ended = std::move(body_);
    if (state == CallBody::State::kNone) {
      GiveUp(out);
      TextByte(c, out);
      return;
    }
    at_start_ = true;
    for (const char unread : ended->unread()) Byte(unread, out);
  }

  // What has been written since the last whole call is text.
  void GiveUp(AnswerEvents& out) {
    at_start_ = false;
    if (out.in_call()) {
      out.BreakCall(std::exchange(written_, ""));
    } else {
      out.Text(std::exchange(written_, ""));
    }
  }

  void TextByte(char c, AnswerEvents& out) {
    if (at_start_ && held_.empty() && markers_.bare != 0 && c == markers_.bare)
      return BeginBody(/*bare=*/true, std::string(1, c), out);
    held_.push_back(c);
    while (!held_.empty()) {
      if (Is(markers_.opening)) return BeginBody(/*bare=*/false, std::exchange(held_, ""), out);
      if (Is(markers_.silent)) {
        space_.clear();
        held_.clear();
        return;
      }
      if (Begins(markers_.opening) || Begins(markers_.silent)) return;
      Release(held_[0], out);
      held_.erase(0, 1);
    }
  }

  bool Is(const std::vector<std::string>& markers) const {
    return std::find(markers.begin(), markers.end(), held_) != markers.end();
  }
  bool Begins(const std::vector<std::string>& markers) const {
    return std::any_of(markers.begin(), markers.end(),
                       [&](const std::string& m) { return m.starts_with(held_); });
  }

  // White space waits for what follows it: before a call it is the format's.
  void Release(char c, AnswerEvents& out) {
    if (absl::ascii_isspace(c)) {
      space_.push_back(c);
      return;
    }
    at_start_ = false;
    space_.push_back(c);
    out.Text(std::exchange(space_, ""));
  }

  void BeginBody(bool bare, std::string marker, AnswerEvents& out) {
    written_ = std::exchange(space_, "") + marker;
    calls_before_ = out.calls();
    body_ = make_body_(bare);
    if (!bare) return;
    written_.pop_back();
    Byte(marker[0], out);
  }

  const CallMarkers markers_;
  const CallBodyMaker make_body_;
  std::string held_;     // may become a marker
  std::string space_;    // before it
  std::string written_;  // of the body, since its last whole call
  std::unique_ptr<CallBody> body_;
  int64_t calls_before_ = 0;
  bool at_start_ = true;  // of the answer or behind a call, white space aside
};

}  // namespace

std::unique_ptr<CallParser> MakeMarkedCallParser(CallMarkers markers, CallBodyMaker make_body) {
  return std::make_unique<MarkedCallParser>(std::move(markers), std::move(make_body));
}

}  // namespace tessera::coordinator
