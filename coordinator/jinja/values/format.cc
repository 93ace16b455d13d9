#include "coordinator/jinja/values/format.h"

#include <algorithm>
#include <string>

#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

constexpr size_t kMaxIndex = size_t{1} << 30;

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

// Replaces the {} fields of one format.
class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Text& format, const Arguments& arguments)
      : runtime_(runtime), format_(format), bytes_(format.bytes()), arguments_(arguments) {}

  absl::StatusOr<Value> Format() {
    for (size_t at = 0; at < bytes_.size();) {
      const size_t brace = std::min(bytes_.find_first_of("{}", at), bytes_.size());
      out_.AppendSlice(format_, at, brace);
      at = brace;
      if (at == bytes_.size()) {
        break;
      }
      if (at + 1 < bytes_.size() && bytes_[at + 1] == bytes_[at]) {
        out_.AppendSlice(format_, at, at + 1);
        at += 2;
        continue;
      }
      if (bytes_[at] == '}') {
        return RenderError("Single '}' encountered in format string");
      }
      const size_t close = bytes_.find('}', at);
      if (close == std::string::npos) {
        return RenderError("Single '{' encountered in format string");
      }
      JINJA_RETURN_IF_ERROR(Field(std::string_view(bytes_).substr(at + 1, close - at - 1)));
      JINJA_RETURN_IF_ERROR(runtime_.CheckSize(out_.size()));
      at = close + 1;
    }
    out_.set_markup(format_.markup());
    return runtime_.NewString(std::move(out_));
  }

 private:
  absl::Status Field(std::string_view field) {
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string_view name = field.substr(0, colon);
    const std::string_view spec = field.substr(std::min(colon + 1, field.size()));
    const bool fixed =
        spec.size() == 3 && spec[0] == '.' && IsAsciiDigit(spec[1]) && spec[2] == 'f';
    if ((!spec.empty() && !fixed) || name.find_first_of("{.[!") != std::string_view::npos) {
      return RenderError(StrCat("the format field {", field,
                                "} is not supported: fields are {}, {0}, {name} and {:.2f}"));
    }
    JINJA_ASSIGN_OR_RETURN(const Value value, Lookup(name));
    if (!fixed) {
      JINJA_ASSIGN_OR_RETURN(const Text text, ToText(runtime_, value));
      out_.Append(format_.markup() && !text.markup() ? EscapeHtml(text) : text);
      return absl::OkStatus();
    }
    if (!value.is_number()) {
      return RenderError(
          StrCat("the format field {:", spec, "} needs a number, not ", value.TypeName()));
    }
    out_.Append(FixedPoint(value.float_value(), spec[1] - '0'), true);
    return absl::OkStatus();
  }

  absl::StatusOr<Value> Lookup(std::string_view name) {
    if (!name.empty() && !IsAsciiDigit(name[0])) {
      for (const auto& [key, value] : arguments_.keyword) {
        if (key == name) {
          return value;
        }
      }
      return RenderError(StrCat("KeyError: '", name, "'"));
    }
    const bool automatic = name.empty();
    if (automatic ? manual_ : next_ > 0) {
      return RenderError("cannot mix automatic and manual field numbers");
    }
    manual_ = !automatic;
    size_t index = automatic ? next_++ : 0;
    for (const char digit : name) {
      index = IsAsciiDigit(digit)
                  ? std::min(index * 10 + static_cast<size_t>(digit - '0'), kMaxIndex)
                  : kMaxIndex;
    }
    if (index >= arguments_.positional.size()) {
      return RenderError(StrCat("the format field {", name, "} has no positional argument"));
    }
    return arguments_.positional[index];
  }

  Runtime& runtime_;
  const Text& format_;
  const std::string& bytes_;
  const Arguments& arguments_;
  size_t next_ = 0;
  bool manual_ = false;
  Text out_;
};

}  // namespace

absl::StatusOr<Value> FormatBraces(Runtime& runtime, const Text& format,
                                   const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(runtime.Touch(format.size()));
  return BraceFormatter(runtime, format, arguments).Format();
}

}  // namespace tessera::coordinator::jinja
