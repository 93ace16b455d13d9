#include "coordinator/answer/python_calls_body.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "coordinator/answer/python_literal.h"
#include "coordinator/answer/trim.h"

namespace tessera::coordinator {
namespace {

struct PythonCall {
  std::string name;
  std::string arguments;  // JSON
};

std::optional<std::vector<PythonCall>> ReadList(std::string_view text) {
  PythonReader reader(text);
  std::vector<PythonCall> calls;
  reader.Expect('[');
  do {
    PythonCall call{reader.Name(), "{"};
    reader.Expect('(');
    while (reader.ok() && !reader.Peek(')')) {
      if (call.arguments.size() > 1) call.arguments += ", ";
      absl::StrAppend(&call.arguments, JsonString(reader.Name()), ": ");
      reader.Expect('=');
      call.arguments += reader.Value();
      if (!reader.Take(',')) break;
    }
    reader.Expect(')');
    call.arguments += "}";
    calls.push_back(std::move(call));
  } while (reader.ok() && reader.Take(',') && !reader.Peek(']'));
  reader.Expect(']');
  if (!reader.ok()) return std::nullopt;
  return calls;
}

class PythonCallsBody final : public CallBody {
 public:
  explicit PythonCallsBody(const PythonCallsOptions& options)
      : options_(options), closing_(options.closing) {}

  State Byte(char c, AnswerEvents& out) override {
    if (!list_ended_) return ListByte(c, out);
    if (closing_.Byte(c)) return closing_.complete() ? State::kDone : State::kOpen;
    unread_ = closing_.held();
    return State::kDone;
  }

  bool Finish(AnswerEvents&) override { return list_ended_; }

 private:
  State ListByte(char c, AnswerEvents& out) {
    if (list_.empty() && absl::ascii_isspace(c)) return State::kOpen;
    if (list_.empty() && c != '[') return State::kNone;
    list_.push_back(c);
    if (quote_ != 0) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == quote_) {
        quote_ = 0;
      }
      return State::kOpen;
    }
    if (c == '"' || c == '\'') quote_ = c;
    if (c == '[' || c == '{' || c == '(') ++depth_;
    if (c == ']' || c == '}' || c == ')') --depth_;
    if (depth_ > 0) return MayBeList() ? State::kOpen : State::kNone;
    const auto calls = ReadList(list_);
    if (!calls.has_value()) return State::kNone;
    for (const PythonCall& call : *calls) {
      if (options_.known != nullptr && !options_.known->Has(call.name)) return State::kNone;
    }
    for (const PythonCall& call : *calls) {
      out.BeginCall(call.name);
      out.Arguments(call.arguments);
      out.EndCall();
    }
    list_ended_ = true;
    return State::kOpen;
  }

  // So that other text in brackets goes on at once: a name must follow, then a
  // parenthesis.
  bool MayBeList() const {
    const std::string_view text = TrimLeft(std::string_view(list_).substr(1));
    if (text.empty()) return true;
    const size_t name =
        text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    return name == std::string_view::npos || (name > 0 && text[name] == '(');
  }

  const PythonCallsOptions options_;
  std::string list_;
  int depth_ = 0;
  char quote_ = 0;
  bool escaped_ = false;
  bool list_ended_ = false;
  ClosingMarker closing_;
};

}  // namespace

std::unique_ptr<CallBody> MakePythonCallsBody(const PythonCallsOptions& options) {
  return std::make_unique<PythonCallsBody>(options);
}

}  // namespace tessera::coordinator
