#include "coordinator/answer/harmony_parser.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "coordinator/answer/json_scanner.h"

namespace tessera::coordinator {
namespace {

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>";
constexpr std::array<std::string_view, 7> kMarkers = {
    kStart, kChannel, kMessage, "<|end|>", "<|call|>", "<|return|>", "<|constrain|>"};
constexpr std::string_view kRecipient = "to=";
constexpr std::string_view kFunctions = "functions.";

class HarmonyParser final : public CallParser {
 public:
  void Append(std::string_view text, AnswerEvents& out) override {
    for (const char c : text) Byte(c, out);
  }

  void Finish(AnswerEnd end, AnswerEvents& out) override {
    for (const char c : std::exchange(held_, "")) TextByte(c, out);
    // A header without a message says nothing, unless it is all there is.
    if (in_header_ && !any_message_) out.Text(std::exchange(header_, ""));
    if (!in_header_) EndMessage(end == AnswerEnd::kCut, out);
  }

 private:
  enum class Kind { kText, kThinking, kCall };

  void Byte(char c, AnswerEvents& out) {
    held_.push_back(c);
    while (!held_.empty()) {
      const auto is = [&](std::string_view m) { return m == held_; };
      if (std::any_of(kMarkers.begin(), kMarkers.end(), is)) {
        Marker(std::exchange(held_, ""), out);
        return;
      }
      const auto begins = [&](std::string_view m) { return m.starts_with(held_); };
      if (std::any_of(kMarkers.begin(), kMarkers.end(), begins)) return;
      TextByte(held_[0], out);
      held_.erase(0, 1);
    }
  }

  void Marker(const std::string& marker, AnswerEvents& out) {
    if (in_header_) {
      if (marker == kMessage) return BeginMessage(out);
      // Separates the words of a header.
      header_ += marker == kChannel ? " channel=" : " ";
      return;
    }
    EndMessage(/*cut=*/false, out);
    in_header_ = true;
    header_ = marker == kChannel ? " channel=" : "";
  }

  void BeginMessage(AnswerEvents& out) {
    in_header_ = false;
    any_message_ = true;
    const std::string header = std::exchange(header_, "");
    const auto word = [&](std::string_view key) {
      const size_t at = header.find(key);
      if (at == std::string::npos) return std::string();
      const size_t begin = at + key.size();
      return header.substr(begin, header.find_first_of(" \n", begin) - begin);
    };
    const std::string recipient = word(kRecipient);
    const std::string channel = word("channel=");
    kind_ = channel == "analysis" || (!recipient.empty() && recipient != "assistant")
                ? Kind::kThinking
                : Kind::kText;
    if (recipient.starts_with(kFunctions) && recipient.size() > kFunctions.size()) {
      kind_ = Kind::kCall;
      scanner_ = JsonScanner();
      written_.clear();
      call_ended_ = false;
      out.BeginCall(recipient.substr(kFunctions.size()));
    }
  }

  void TextByte(char c, AnswerEvents& out) {
    if (in_header_) {
      header_.push_back(c);
    } else if (kind_ == Kind::kText) {
      out.Text({&c, 1});
    } else if (kind_ == Kind::kThinking) {
      out.Thinking({&c, 1});
    } else {
      CallByte(c, out);
    }
  }

  void CallByte(char c, AnswerEvents& out) {
    if (written_.empty() && absl::ascii_isspace(c)) return;
    if (call_ended_) {  // white space behind the object, or text that says nothing to a function
      if (!absl::ascii_isspace(c)) out.Text({&c, 1});
      return;
    }
    const bool in_string = scanner_.in_string();
    written_.push_back(c);
    const JsonScanner::State state =
        written_.size() == 1 && c != '{' ? JsonScanner::State::kBroken : scanner_.Byte(c);
    if (state == JsonScanner::State::kBroken) {
      out.BreakCall(std::exchange(written_, ""));
      kind_ = Kind::kText;
      return;
    }
    out.Arguments(in_string ? EscapedControl(c) : std::string(1, c));
    if (state == JsonScanner::State::kOpen) return;
    out.EndCall();
    call_ended_ = true;
  }

  void EndMessage(bool cut, AnswerEvents& out) {
    if (kind_ != Kind::kCall || call_ended_) return;
    if (written_.empty() && !cut) {  // a call without arguments
      out.Arguments("{}");
      out.EndCall();
    } else if (!cut) {
      out.BreakCall(std::exchange(written_, ""));
    }
    kind_ = Kind::kText;
  }

  std::string held_;  // may become a marker
  bool in_header_ = true;
  bool any_message_ = false;
  std::string header_;
  Kind kind_ = Kind::kText;
  JsonScanner scanner_;
  std::string written_;  // of the call's arguments
  bool call_ended_ = false;
};

}  // namespace

std::unique_ptr<CallParser> MakeHarmonyParser() { return std::make_unique<HarmonyParser>(); }

}  // namespace tessera::coordinator
