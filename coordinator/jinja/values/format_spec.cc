// str.format and the format specification of one field.

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "coordinator/jinja/values/access.h"
#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/format.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/string_ops.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

// [[fill]align][sign][#][0][width][grouping][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0;
  char sign = '-';
  bool alternate = false;
  Int width = 0;
  char grouping = 0;
  int precision = -1;
  char type = 0;
};

bool IsAlign(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

Int ParseDigits(std::string_view spec, size_t& at) {
  Int number = 0;
  for (; at < spec.size() && IsAsciiDigit(spec[at]); ++at) {
    number = std::min<Int>(number * 10 + (spec[at] - '0'), Int{1} << 30);
  }
  return number;
}

absl::StatusOr<Spec> ParseSpec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  if (!text.empty()) {
    size_t next = 0;
    NextCodePoint(text, next);
    if (next < text.size() && IsAlign(text[next])) {
      spec.fill = std::string(text.substr(0, next));
      spec.align = text[next];
      at = next + 1;
    } else if (IsAlign(text[0])) {
      spec.align = text[at++];
    }
  }
  if (peek() == '+' || peek() == '-' || peek() == ' ') {
    spec.sign = text[at++];
  }
  if (peek() == '#') {
    spec.alternate = true;
    ++at;
  }
  if (peek() == '0') {
    ++at;
    if (spec.align == 0) {
      spec.fill = std::string(1, '0');
      spec.align = 'z';  // '=' for numbers, no alignment for strings
    }
  }
  spec.width = ParseDigits(text, at);
  if (peek() == ',' || peek() == '_') {
    spec.grouping = text[at++];
  }
  if (peek() == '.') {
    ++at;
    if (!IsAsciiDigit(peek())) {
      return RenderError("Format specifier missing precision");
    }
    spec.precision = static_cast<int>(std::min<Int>(ParseDigits(text, at), 4096));
  }
  if (at < text.size()) {
    spec.type = text[at++];
  }
  if (at != text.size()) {
    return RenderError(StrCat("Invalid format specifier '", text, "'"));
  }
  return spec;
}

absl::StatusOr<Text> Align(Runtime& runtime, const Spec& spec, const Text& text, char fallback) {
  const Text fill(spec.fill, true);
  const Int missing =
      std::max<Int>(spec.width - static_cast<Int>(CountCodePoints(text.bytes())), 0);
  switch (spec.align == 0 || spec.align == 'z' ? fallback : spec.align) {
    case '<': return Pad(runtime, text, 0, fill, missing);
    case '^': return Pad(runtime, text, missing / 2, fill, missing - missing / 2);
    default: return Pad(runtime, text, missing, fill, 0);
  }
}

absl::Status UnknownType(const Spec& spec, const Value& value) {
  return RenderError(
      StrCat("Unknown format code '", spec.type, "' for object of type '", value.TypeName(), "'"));
}

absl::StatusOr<Text> FormatString(Runtime& runtime, const Spec& spec, const Value& value) {
  if (spec.type != 0 && spec.type != 's') {
    return UnknownType(spec, value);
  }
  if (spec.align == '=' || spec.sign != '-' || spec.alternate || spec.grouping != 0) {
    return RenderError("the format specifier has parts that are for numbers only");
  }
  Text text = value.text();
  if (spec.precision >= 0) {
    text = text.Slice(0, OffsetOfCodePoint(text.bytes(), static_cast<size_t>(spec.precision)));
  }
  return Align(runtime, spec, text, '<');
}

std::string Grouped(const std::string& digits, char separator, size_t group) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % group == 0) {
      out.push_back(separator);
    }
    out.push_back(digits[i]);
  }
  return out;
}

absl::StatusOr<Text> FinishNumber(Runtime& runtime, const Spec& spec, bool negative,
                                  const std::string& prefix, const std::string& whole,
                                  const std::string& rest) {
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  const bool binary = prefix.size() == 2;
  std::string digits = spec.grouping == 0 ? whole : Grouped(whole, spec.grouping, binary ? 4 : 3);
  const bool inside = spec.align == '=' || spec.align == 'z';
  if (!inside) {
    return Align(runtime, spec, Text(StrCat(sign, prefix, digits, rest), true), '>');
  }
  const Int used = static_cast<Int>(sign.size() + prefix.size() + digits.size() + rest.size());
  JINJA_ASSIGN_OR_RETURN(const Text padded, Pad(runtime, Text(digits + rest, true),
                                                spec.width - used, Text(spec.fill, true), 0));
  return Text(StrCat(sign, prefix, padded.bytes()), true);
}

absl::StatusOr<Text> FormatFloat(Runtime& runtime, const Spec& spec, const Value& value) {
  const double number = value.float_value();
  const bool negative = std::signbit(number) && !std::isnan(number);
  const double magnitude = std::fabs(number);
  std::string digits;
  switch (spec.type) {
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case 'n':
      digits = PrintDouble(magnitude, spec.type == 'n' ? 'g' : spec.type,
                           spec.precision < 0 ? 6 : spec.precision, spec.alternate);
      break;
    case '%':
      digits = PrintDouble(magnitude * 100, 'f', spec.precision < 0 ? 6 : spec.precision,
                           spec.alternate) +
               "%";
      break;
    case 0:
      digits = spec.precision < 0 ? FloatToString(magnitude)
                                  : PrintDouble(magnitude, 'g', spec.precision, spec.alternate);
      if (digits.find_first_of(".en") == std::string::npos) {
        digits.append(".0");
      }
      break;
    default: return UnknownType(spec, value);
  }
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  return FinishNumber(runtime, spec, negative, "", digits.substr(0, whole), digits.substr(whole));
}

absl::StatusOr<Text> FormatInt(Runtime& runtime, const Spec& spec, const Value& value) {
  int base = 10;
  switch (spec.type) {
    case 0:
    case 'd':
    case 'n': break;
    case 'b': base = 2; break;
    case 'o': base = 8; break;
    case 'x':
    case 'X': base = 16; break;
    case 'c': {
      if (value.int_value() < 0 || value.int_value() > 0x10FFFF ||
          (value.int_value() >= 0xD800 && value.int_value() <= 0xDFFF)) {
        return RenderError("%c arg not in range(0x110000)");
      }
      std::string character;
      AppendUtf8(static_cast<uint32_t>(value.int_value()), character);
      return Align(runtime, spec, Text(character, true), '<');
    }
    default: return FormatFloat(runtime, spec, value);
  }
  if (spec.precision >= 0) {
    return RenderError("Precision not allowed in integer format specifier");
  }
  const Int number = value.int_value();
  const std::string prefix = spec.alternate && base != 10 ? StrCat("0", spec.type) : "";
  return FinishNumber(runtime, spec, number < 0, prefix, Digits(number, base, spec.type == 'X'),
                      "");
}

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
    if (field.find('{') != std::string_view::npos) {
      return RenderError("format fields inside a format field are not supported");
    }
    const size_t colon = field.find(':');
    const std::string_view spec = colon == std::string_view::npos ? "" : field.substr(colon + 1);
    std::string_view name = field.substr(0, colon);
    char conversion = 0;
    if (const size_t mark = name.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != name.size()) {
        return RenderError("a format field's conversion is one of !r, !s and !a");
      }
      conversion = name[mark + 1];
      name = name.substr(0, mark);
    }
    JINJA_ASSIGN_OR_RETURN(Value value, Lookup(name));
    JINJA_ASSIGN_OR_RETURN(value, Converted(std::move(value), conversion));
    JINJA_ASSIGN_OR_RETURN(const Text text, FormatBySpec(runtime_, value, spec));
    out_.Append(format_.markup() && !text.markup() ? EscapeHtml(text) : text);
    return absl::OkStatus();
  }

  absl::StatusOr<Value> Converted(Value value, char conversion) {
    switch (conversion) {
      case 0: return value;
      case 's': {
        JINJA_ASSIGN_OR_RETURN(Text text, ToText(runtime_, value));
        return runtime_.NewString(std::move(text));
      }
      case 'r': {
        JINJA_ASSIGN_OR_RETURN(Text text, Repr(runtime_, value));
        return runtime_.NewString(std::move(text));
      }
      default: return RenderError(StrCat("Unknown conversion specifier '", conversion, "'"));
    }
  }

  // name := [number | identifier] ('.' attribute | '[' key ']')*
  absl::StatusOr<Value> Lookup(std::string_view name) {
    size_t at = std::min(name.find_first_of(".["), name.size());
    JINJA_ASSIGN_OR_RETURN(Value value, First(name.substr(0, at)));
    while (at < name.size()) {
      const bool item = name[at] == '[';
      const size_t begin = at + 1;
      const size_t end =
          std::min(item ? name.find(']', begin) : name.find_first_of(".[", begin), name.size());
      const std::string_view part = name.substr(begin, end - begin);
      if (part.empty() || (item && end == name.size())) {
        return RenderError("Empty attribute in format string");
      }
      const bool number = item && std::all_of(part.begin(), part.end(), IsAsciiDigit);
      size_t digit = 0;
      const Value key = number ? Value::Integer(ParseDigits(part, digit)) : Value::Literal(part);
      JINJA_ASSIGN_OR_RETURN(
          value, item ? GetItem(runtime_, value, key) : GetAttribute(runtime_, value, part));
      at = item ? end + 1 : end;
    }
    return value;
  }

  absl::StatusOr<Value> First(std::string_view name) {
    if (!name.empty() && !IsAsciiDigit(name[0])) {
      for (const auto& [key, value] : arguments_.keyword) {
        if (key == name) {
          return value;
        }
      }
      return RenderError(StrCat("KeyError: '", name, "'"));
    }
    size_t digit = 0;
    const bool automatic = name.empty();
    if (automatic ? manual_ : next_ > 0) {
      return RenderError("cannot mix automatic and manual field numbers");
    }
    manual_ = !automatic;
    const Int index = automatic ? static_cast<Int>(next_++) : ParseDigits(name, digit);
    if (index >= static_cast<Int>(arguments_.positional.size())) {
      return RenderError(StrCat("Replacement index ", static_cast<int64_t>(index),
                                " out of range for positional args tuple"));
    }
    return arguments_.positional[static_cast<size_t>(index)];
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

absl::StatusOr<Text> FormatBySpec(Runtime& runtime, const Value& value,
                                  std::string_view spec_text) {
  if (spec_text.empty()) {
    return ToText(runtime, value);
  }
  JINJA_ASSIGN_OR_RETURN(const Spec spec, ParseSpec(spec_text));
  switch (value.kind()) {
    case Kind::kString: return FormatString(runtime, spec, value);
    case Kind::kBool:
    case Kind::kInt: return FormatInt(runtime, spec, value);
    case Kind::kFloat: return FormatFloat(runtime, spec, value);
    default:
      return RenderError(
          StrCat("unsupported format string passed to ", value.TypeName(), ".__format__"));
  }
}

absl::StatusOr<Value> FormatBraces(Runtime& runtime, const Text& format,
                                   const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(runtime.Touch(format.size()));
  return BraceFormatter(runtime, format, arguments).Format();
}

}  // namespace tessera::coordinator::jinja
