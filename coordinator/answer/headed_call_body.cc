#include "coordinator/answer/headed_call_body.h"

#include <string>

#include "coordinator/answer/json_scanner.h"
#include "coordinator/answer/trim.h"

namespace tessera::coordinator {
namespace {

constexpr size_t kMaxHeadBytes = 512;
constexpr std::string_view kFence = "```";

class HeadedCallBody final : public CallBody {
 public:
  explicit HeadedCallBody(const HeadedCallOptions& options)
      : options_(options), closing_(options.closing), fence_(kFence) {}

  State Byte(char c, AnswerEvents& out) override {
    if (at_ == At::kHead) return HeadByte(c, out);
    if (at_ == At::kArguments) return ArgumentByte(c, out);
    if (at_ == At::kFence) {
      if (fence_.Byte(c)) {
        if (fence_.complete()) at_ = At::kBehind;
        return State::kOpen;
      }
      // No fence closes it: what came instead may be the closing marker.
      at_ = At::kBehind;
      State state = State::kOpen;
      for (const char held : std::string(fence_.held())) state = ByteBehind(held);
      return state;
    }
    return ByteBehind(c);
  }

  bool Finish(AnswerEvents&) override { return at_ == At::kFence || at_ == At::kBehind; }

 private:
  enum class At { kHead, kArguments, kFence, kBehind };

  State HeadByte(char c, AnswerEvents& out) {
    if (c != '{') {
      head_.push_back(c);
      return head_.size() <= kMaxHeadBytes ? State::kOpen : State::kNone;
    }
    std::string_view head = head_;
    fenced_ = head.find(kFence) != std::string_view::npos;
    if (fenced_) head = head.substr(0, head.find(kFence));
    const std::string_view name = Trim(options_.name_of(head));
    const bool is_name = !name.empty() && name.find_first_of(" \n\t\"'<>[](),") == name.npos;
    if (!is_name) return State::kNone;
    out.BeginCall(name);
    at_ = At::kArguments;
    return ArgumentByte(c, out);
  }

  State ArgumentByte(char c, AnswerEvents& out) {
    const bool in_string = scanner_.in_string();
    const JsonScanner::State state = scanner_.Byte(c);
    if (state == JsonScanner::State::kBroken) return State::kNone;
    out.Arguments(in_string ? EscapedControl(c) : std::string(1, c));
    if (state == JsonScanner::State::kOpen) return State::kOpen;
    out.EndCall();
    at_ = fenced_ ? At::kFence : At::kBehind;
    return State::kOpen;
  }

  State ByteBehind(char c) {
    if (!unread_.empty()) {
      unread_.push_back(c);
      return State::kDone;
    }
    if (closing_.Byte(c)) return closing_.complete() ? State::kDone : State::kOpen;
    unread_ = closing_.held();
    return State::kDone;
  }

  const HeadedCallOptions options_;
  At at_ = At::kHead;
  std::string head_;
  bool fenced_ = false;
  JsonScanner scanner_;
  ClosingMarker closing_;
  ClosingMarker fence_;
};

}  // namespace

std::unique_ptr<CallBody> MakeHeadedCallBody(const HeadedCallOptions& options) {
  return std::make_unique<HeadedCallBody>(options);
}

std::string_view Before(std::string_view text, std::string_view marker) {
  return text.substr(0, text.find(marker));
}

std::string_view Behind(std::string_view text, std::string_view marker) {
  const size_t at = text.rfind(marker);
  return at == std::string_view::npos ? text : text.substr(at + marker.size());
}

}  // namespace tessera::coordinator
