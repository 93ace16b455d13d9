#include "coordinator/jinja/values/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "coordinator/jinja/values/access.h"
#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/string_ops.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

constexpr int kMaxPrecision = 4096;

// One % conversion of a format.
struct Conversion {
  std::optional<std::string> name;
  bool left = false;
  bool plus = false;
  bool space = false;
  bool zero = false;
  bool alternate = false;
  Int width = 0;
  Int precision = -1;
  char type = 0;
};

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Text& format, const Value& values)
      : runtime_(runtime), format_(format), bytes_(format.bytes()), values_(values) {}

  absl::StatusOr<Value> Format() {
    for (size_t at = 0; at < bytes_.size();) {
      const size_t percent = std::min(bytes_.find('%', at), bytes_.size());
      out_.AppendSlice(format_, at, percent);
      at = percent;
      if (at == bytes_.size()) {
        break;
      }
      const size_t start = at++;
      JINJA_ASSIGN_OR_RETURN(const Conversion conversion, Parse(at));
      if (conversion.type == '%') {
        out_.AppendSlice(format_, start, start + 1);
        continue;
      }
      JINJA_ASSIGN_OR_RETURN(const Value value, Argument(conversion));
      JINJA_RETURN_IF_ERROR(Convert(conversion, value, format_.FromTemplateAt(start)));
      JINJA_RETURN_IF_ERROR(runtime_.CheckSize(out_.size()));
    }
    // What Python can subscript may hold names that the format does not ask for.
    const bool subscriptable = values_.is_undefined() || values_.is_dict() || values_.is_list() ||
                               values_.kind() == Kind::kRange;
    const bool all_used =
        values_.is_tuple() ? next_ == values_.items().size() : next_ == 1 || subscriptable;
    if (!all_used) {
      return RenderError("not all arguments converted during string formatting");
    }
    out_.set_markup(format_.markup());
    return runtime_.NewString(std::move(out_));
  }

 private:
  absl::StatusOr<Conversion> Parse(size_t& at) {
    Conversion conversion;
    if (at < bytes_.size() && bytes_[at] == '(') {
      const size_t close = bytes_.find(')', at);
      if (close == std::string::npos) {
        return RenderError("incomplete format key");
      }
      conversion.name = bytes_.substr(at + 1, close - at - 1);
      at = close + 1;
    }
    for (; at < bytes_.size(); ++at) {
      switch (bytes_[at]) {
        case '-': conversion.left = true; continue;
        case '+': conversion.plus = true; continue;
        case ' ': conversion.space = true; continue;
        case '0': conversion.zero = true; continue;
        case '#': conversion.alternate = true; continue;
        default: break;
      }
      break;
    }
    JINJA_ASSIGN_OR_RETURN(conversion.width, ParseNumber(at, 0));
    if (conversion.width < 0) {
      conversion.left = true;
      conversion.width = -conversion.width;
    }
    if (at < bytes_.size() && bytes_[at] == '.') {
      ++at;
      JINJA_ASSIGN_OR_RETURN(conversion.precision, ParseNumber(at, 0));
      conversion.precision = std::max<Int>(conversion.precision, 0);
    }
    while (at < bytes_.size() && (bytes_[at] == 'h' || bytes_[at] == 'l' || bytes_[at] == 'L')) {
      ++at;
    }
    if (at >= bytes_.size()) {
      return RenderError("incomplete format");
    }
    conversion.type = bytes_[at++];
    return conversion;
  }

  absl::StatusOr<Int> ParseNumber(size_t& at, Int fallback) {
    if (at < bytes_.size() && bytes_[at] == '*') {
      ++at;
      JINJA_ASSIGN_OR_RETURN(const Value value, Argument({}));
      if (!value.is_integral()) {
        return RenderError("* wants int");
      }
      return std::clamp(value.int_value(), -(Int{1} << 40), Int{1} << 40);
    }
    Int number = fallback;
    for (; at < bytes_.size() && bytes_[at] >= '0' && bytes_[at] <= '9'; ++at) {
      number = std::min<Int>(number * 10 + (bytes_[at] - '0'), Int{1} << 40);
    }
    return number;
  }

  absl::StatusOr<Value> Argument(const Conversion& conversion) {
    if (conversion.name.has_value()) {
      if (!values_.is_dict()) {
        return RenderError("format requires a mapping");
      }
      const Value* found = values_.dict().Find(*conversion.name);
      return found != nullptr ? absl::StatusOr<Value>(*found)
                              : RenderError(StrCat("KeyError: '", *conversion.name, "'"));
    }
    const size_t available = values_.is_tuple() ? values_.items().size() : 1;
    if (next_ >= available) {
      return RenderError("not enough arguments for format string");
    }
    ++next_;
    return values_.is_tuple() ? values_.items()[next_ - 1] : values_;
  }

  absl::Status Convert(const Conversion& conversion, const Value& value, bool from_template) {
    switch (conversion.type) {
      case 's':
      case 'r':
      case 'a': return ConvertText(conversion, value);
      case 'c': return ConvertCharacter(conversion, value, from_template);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X': return ConvertInt(conversion, value, from_template);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': return ConvertFloat(conversion, value, from_template);
      default: return RenderError(StrCat("unsupported format character '", conversion.type, "'"));
    }
  }

  absl::Status AppendPadded(const Conversion& conversion, const Text& text) {
    const Int missing = conversion.width - static_cast<Int>(CountCodePoints(text.bytes()));
    const Text space(" ", true);
    JINJA_ASSIGN_OR_RETURN(const Text padded, conversion.left
                                                  ? Pad(runtime_, text, 0, space, missing)
                                                  : Pad(runtime_, text, missing, space, 0));
    out_.Append(padded);
    return absl::OkStatus();
  }

  absl::Status ConvertText(const Conversion& conversion, const Value& value) {
    Text text;
    if (conversion.type == 's') {
      JINJA_ASSIGN_OR_RETURN(text, ToText(runtime_, value));
      text = format_.markup() && !text.markup() ? EscapeHtml(text) : text;
    } else if (conversion.type == 'a' && value.is_string()) {
      text = Text(QuoteString(value.bytes(), true), value.text().AllFromTemplate());
    } else {
      JINJA_ASSIGN_OR_RETURN(text, Repr(runtime_, value));
    }
    if (conversion.precision >= 0) {
      const auto kept = static_cast<size_t>(conversion.precision);
      text = text.Slice(0, OffsetOfCodePoint(text.bytes(), kept));
    }
    return AppendPadded(conversion, text);
  }

  absl::Status ConvertCharacter(const Conversion& conversion, const Value& value,
                                bool from_template) {
    if (value.is_string() && CountCodePoints(value.bytes()) == 1) {
      return AppendPadded(conversion, value.text());
    }
    if (!value.is_integral() || value.int_value() < 0 || value.int_value() > 0x10FFFF ||
        (value.int_value() >= 0xD800 && value.int_value() <= 0xDFFF)) {
      return RenderError("%c requires int or char");
    }
    std::string character;
    AppendUtf8(static_cast<uint32_t>(value.int_value()), character);
    return AppendPadded(conversion, Text(character, from_template));
  }

  // Sign, prefix and digits, padded with zeros between them or with spaces outside.
  absl::Status AppendNumber(const Conversion& conversion, bool negative, const std::string& prefix,
                            std::string digits, bool from_template) {
    const std::string sign = negative          ? "-"
                             : conversion.plus ? "+"
                                               : std::string(conversion.space ? 1 : 0, ' ');
    const Int used = static_cast<Int>(sign.size() + prefix.size() + digits.size());
    if (conversion.zero && !conversion.left && used < conversion.width) {
      JINJA_RETURN_IF_ERROR(runtime_.CheckSize(static_cast<size_t>(conversion.width)));
      digits.insert(0, static_cast<size_t>(conversion.width - used), '0');
    }
    return AppendPadded(conversion, Text(StrCat(sign, prefix, digits), from_template));
  }

  absl::Status ConvertInt(const Conversion& conversion, const Value& value, bool from_template) {
    JINJA_RETURN_IF_ERROR(CheckDefined(value));
    const bool decimal = conversion.type == 'd' || conversion.type == 'i' || conversion.type == 'u';
    if (!value.is_integral() && !(decimal && value.is_float())) {
      return RenderError(
          StrCat("%", conversion.type, " format: a number is required, not ", value.TypeName()));
    }
    Int number = 0;
    if (value.is_float()) {
      if (!(std::fabs(value.float_value()) < 1e37)) {
        return RenderError("cannot convert the float to an integer");
      }
      number = static_cast<Int>(value.float_value());
    } else {
      number = value.int_value();
    }
    const int base = decimal ? 10 : conversion.type == 'o' ? 8 : 16;
    std::string digits = Digits(number, base, conversion.type == 'X');
    if (conversion.precision > static_cast<Int>(digits.size())) {
      JINJA_RETURN_IF_ERROR(runtime_.CheckSize(static_cast<size_t>(conversion.precision)));
      digits.insert(0, static_cast<size_t>(conversion.precision) - digits.size(), '0');
    }
    std::string prefix;
    if (conversion.alternate && !decimal) {
      prefix = StrCat("0", conversion.type);
    }
    return AppendNumber(conversion, number < 0, prefix, digits, from_template);
  }

  absl::Status ConvertFloat(const Conversion& conversion, const Value& value, bool from_template) {
    JINJA_RETURN_IF_ERROR(CheckDefined(value));
    if (!value.is_number()) {
      return RenderError(StrCat("must be real number, not ", value.TypeName()));
    }
    const double number = value.float_value();
    const int precision =
        conversion.precision < 0
            ? 6
            : static_cast<int>(std::min<Int>(conversion.precision, kMaxPrecision));
    return AppendNumber(
        conversion, std::signbit(number) && !std::isnan(number), "",
        PrintDouble(std::fabs(number), conversion.type, precision, conversion.alternate),
        from_template);
  }

  Runtime& runtime_;
  const Text& format_;
  const std::string& bytes_;
  const Value& values_;
  size_t next_ = 0;  // positional values used
  Text out_;
};

}  // namespace

std::string Digits(Int value, int base, bool upper) {
  if (value == 0) {
    return "0";
  }
  std::string digits;
  for (; value != 0; value /= base) {
    const int digit = std::abs(static_cast<int>(value % base));
    digits.push_back((upper ? "0123456789ABCDEF" : "0123456789abcdef")[digit]);
  }
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string PrintDouble(double value, char conversion, int precision, bool alternate) {
  const char format[] = {'%',
                         alternate ? '#' : '.',
                         alternate ? '.' : '*',
                         alternate ? '*' : conversion,
                         alternate ? conversion : '\0',
                         '\0'};
  const int size = std::snprintf(nullptr, 0, format, precision, value);
  std::string out(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), format, precision, value);
  out.pop_back();
  return out;
}

absl::StatusOr<Value> FormatPercent(Runtime& runtime, const Text& format, const Value& values) {
  JINJA_RETURN_IF_ERROR(runtime.Touch(format.size()));
  return PercentFormatter(runtime, format, values).Format();
}

}  // namespace tessera::coordinator::jinja
