#include "coordinator/answer/gemma_call_body.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "coordinator/answer/python_literal.h"
#include "coordinator/answer/trim.h"

namespace tessera::coordinator {
namespace {

constexpr std::string_view kCall = "call:";
constexpr std::string_view kQuote = "<|\"|>";
constexpr std::string_view kClosing = "<tool_call|>";
constexpr int kMaxDepth = 32;

// Reads an object -> JSON. Once the text does not fit, ok() is false.
class ArgumentsReader {
 public:
  explicit ArgumentsReader(std::string_view text) : left_(text) {}

  std::string Run() {
    std::string json = Value(0);
    ok_ = ok_ && !json.empty() && json[0] == '{' && Trim(left_).empty();
    return json;
  }
  bool ok() const { return ok_; }

 private:
  bool Take(std::string_view text) {
    left_ = TrimLeft(left_);
    if (!left_.starts_with(text)) return false;
    left_.remove_prefix(text.size());
    return true;
  }

  std::string_view Until(std::string_view ends) {
    const std::string_view text = left_.substr(0, left_.find_first_of(ends));
    left_.remove_prefix(text.size());
    return Trim(text);
  }

  std::string Quoted() {
    const size_t end = left_.find(kQuote);
    ok_ = ok_ && end != std::string_view::npos;
    if (!ok_) return "";
    std::string json = JsonString(left_.substr(0, end));
    left_.remove_prefix(end + kQuote.size());
    return json;
  }

  std::string Value(int depth) {
    ok_ = ok_ && depth <= kMaxDepth;
    if (!ok_) return "";
    if (Take(kQuote)) return Quoted();
    if (Take("{")) return Members(depth);
    if (Take("[")) return Items(depth);
    const std::string_view bare = Until(",]}");
    ok_ = !bare.empty();
    return IsJson(bare) ? std::string(bare) : JsonString(bare);
  }

  std::string Members(int depth) {
    std::string json = "{";
    while (ok_ && !Take("}")) {
      if (json.size() > 1) json += ", ";
      std::string key;
      if (Take(kQuote)) {
        key = Quoted();
      } else {
        const std::string_view bare = Until(":,}");
        ok_ = !bare.empty();
        key = JsonString(bare);
      }
      ok_ = Take(":") && ok_;
      absl::StrAppend(&json, key, ": ", Value(depth + 1));
      if (!Take(",")) {
        ok_ = Take("}") && ok_;
        break;
      }
    }
    return json + "}";
  }

  std::string Items(int depth) {
    std::string json = "[";
    while (ok_ && !Take("]")) {
      if (json.size() > 1) json += ", ";
      json += Value(depth + 1);
      if (!Take(",")) {
        ok_ = Take("]") && ok_;
        break;
      }
    }
    return json + "]";
  }

  std::string_view left_;
  bool ok_ = true;
};

class GemmaCallBody final : public CallBody {
 public:
  State Byte(char c, AnswerEvents& out) override {
    held_.push_back(c);
    const std::string_view held = held_;
    if (held.size() <= kCall.size()) return kCall.starts_with(held) ? State::kOpen : State::kNone;
    if (held.ends_with(kQuote)) in_quotes_ = !in_quotes_;
    if (in_quotes_ || !held.ends_with(kClosing)) return State::kOpen;
    return Read(held.substr(0, held.size() - kClosing.size()), out) ? State::kDone : State::kNone;
  }

  bool Finish(AnswerEvents& out) override { return !in_quotes_ && Read(held_, out); }

 private:
  static bool Read(std::string_view call, AnswerEvents& out) {
    const size_t brace = call.find('{');
    if (!call.starts_with(kCall) || brace == std::string_view::npos) return false;
    const std::string_view name = Trim(call.substr(kCall.size(), brace - kCall.size()));
    ArgumentsReader reader(call.substr(brace));
    const std::string arguments = reader.Run();
    if (name.empty() || !reader.ok()) return false;
    out.BeginCall(name);
    out.Arguments(arguments);
    out.EndCall();
    return true;
  }

  std::string held_;
  bool in_quotes_ = false;
};

}  // namespace

std::unique_ptr<CallBody> MakeGemmaCallBody() { return std::make_unique<GemmaCallBody>(); }

}  // namespace tessera::coordinator
