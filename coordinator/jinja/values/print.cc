#include "coordinator/jinja/values/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/unicode.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

absl::Status AppendRepr(Runtime& runtime, const Value& value, std::string& out);

absl::Status AppendItems(Runtime& runtime, const std::vector<Value>& items, std::string& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    out.append(i == 0 ? "" : ", ");
    JINJA_RETURN_IF_ERROR(AppendRepr(runtime, items[i], out));
  }
  return absl::OkStatus();
}

absl::Status AppendDict(Runtime& runtime, const Dict& dict, std::string& out) {
  out.push_back('{');
  for (size_t i = 0; i < dict.size(); ++i) {
    const auto& [key, value] = dict.entries()[i];
    out.append(i == 0 ? "" : ", ");
    JINJA_RETURN_IF_ERROR(AppendRepr(runtime, key, out));
    out.append(": ");
    JINJA_RETURN_IF_ERROR(AppendRepr(runtime, value, out));
  }
  out.push_back('}');
  return absl::OkStatus();
}

absl::Status AppendView(Runtime& runtime, const Value& value, std::string& out) {
  const View& view = value.view();
  out.append(StrCat(value.TypeName(), "(["));
  for (size_t i = 0; i < view.dict->size(); ++i) {
    const auto& [key, item] = view.dict->entries()[i];
    out.append(i == 0 ? "" : ", ");
    out.append(view.kind == ViewKind::kItems ? "(" : "");
    if (view.kind != ViewKind::kValues) {
      JINJA_RETURN_IF_ERROR(AppendRepr(runtime, key, out));
    }
    out.append(view.kind == ViewKind::kItems ? ", " : "");
    if (view.kind != ViewKind::kKeys) {
      JINJA_RETURN_IF_ERROR(AppendRepr(runtime, item, out));
    }
    out.append(view.kind == ViewKind::kItems ? ")" : "");
  }
  out.append("])");
  return absl::OkStatus();
}

std::string RangeToString(const Range& range) {
  const std::string ends = StrCat(IntToString(range.start), ", ", IntToString(range.stop));
  return range.step == 1 ? StrCat("range(", ends, ")")
                         : StrCat("range(", ends, ", ", IntToString(range.step), ")");
}

absl::Status AppendRepr(Runtime& runtime, const Value& value, std::string& out) {
  const Runtime::Level level(runtime);
  if (!level.ok()) {
    return Runtime::TooDeep();
  }
  JINJA_RETURN_IF_ERROR(runtime.Step());
  JINJA_RETURN_IF_ERROR(runtime.CheckSize(out.size()));
  switch (value.kind()) {
    case Kind::kUndefined: out.append("Undefined"); break;
    case Kind::kNone: out.append("None"); break;
    case Kind::kBool: out.append(value.bool_value() ? "True" : "False"); break;
    case Kind::kInt: out.append(IntToString(value.int_value())); break;
    case Kind::kFloat: out.append(FloatToString(value.float_value())); break;
    case Kind::kString:
      JINJA_RETURN_IF_ERROR(runtime.Touch(value.bytes().size()));
      out.append(value.text().markup() ? StrCat("Markup(", QuoteString(value.bytes()), ")")
                                       : QuoteString(value.bytes()));
      break;
    case Kind::kList:
      out.push_back('[');
      JINJA_RETURN_IF_ERROR(AppendItems(runtime, value.items(), out));
      out.push_back(']');
      break;
    case Kind::kTuple:
      out.push_back('(');
      JINJA_RETURN_IF_ERROR(AppendItems(runtime, value.items(), out));
      out.append(value.items().size() == 1 ? ",)" : ")");
      break;
    case Kind::kDict: return AppendDict(runtime, value.dict(), out);
    case Kind::kView: return AppendView(runtime, value, out);
    case Kind::kRange: out.append(RangeToString(value.range())); break;
    case Kind::kObject: {
      JINJA_ASSIGN_OR_RETURN(const Text text, value.object()->Repr(runtime));
      out.append(text.bytes());
      break;
    }
  }
  return absl::OkStatus();
}

bool HoldsClientTextWithin(const Value& value, int depth) {
  if (depth > kMaxValueDepth) {
    return true;
  }
  const auto holds = [depth](const Value& item) { return HoldsClientTextWithin(item, depth + 1); };
  const auto dict_holds = [&holds](const Dict& dict) {
    return std::any_of(dict.entries().begin(), dict.entries().end(), [&](const Dict::Entry& entry) {
      return holds(entry.first) || holds(entry.second);
    });
  };
  switch (value.kind()) {
    case Kind::kString: return !value.text().AllFromTemplate();
    case Kind::kList:
    case Kind::kTuple: return std::any_of(value.items().begin(), value.items().end(), holds);
    case Kind::kDict: return dict_holds(value.dict());
    case Kind::kView: return dict_holds(*value.view().dict);
    case Kind::kObject: return true;  // what it holds is not known here
    default: return false;
  }
}

}  // namespace

std::string IntToString(Int value) {
  if (value == 0) {
    return "0";
  }
  std::string digits;
  const bool negative = value < 0;
  while (value != 0) {
    const int digit = static_cast<int>(value % 10);
    digits.push_back(static_cast<char>('0' + (digit < 0 ? -digit : digit)));
    value /= 10;
  }
  if (negative) {
    digits.push_back('-');
  }
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string FloatToString(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value < 0 ? "-inf" : "inf";
  }
  char buffer[40];
  const auto scientific =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string text(buffer, scientific.ptr);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) {
    return text;  // both write at least two digits of exponent
  }
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  text.assign(buffer, fixed.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

std::string FixedPoint(double value, int digits) {
  std::string out(static_cast<size_t>(std::snprintf(nullptr, 0, "%.*f", digits, value)) + 1, '\0');
  std::snprintf(out.data(), out.size(), "%.*f", digits, value);
  out.pop_back();
  return out;
}

std::string QuoteString(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const uint32_t c = NextCodePoint(text, &at);
    char escape[16] = "";
    if (c == '\n' || c == '\r' || c == '\t') {
      std::snprintf(escape, sizeof(escape), "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    } else if (c == '\\' || c == static_cast<unsigned char>(quote)) {
      std::snprintf(escape, sizeof(escape), "\\%c", static_cast<char>(c));
    } else if (!IsPrintable(c)) {
      std::snprintf(escape, sizeof(escape),
                    c < 0x100     ? "\\x%02x"
                    : c < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                    c);
    }
    if (escape[0] != '\0') {
      out.append(escape);
    } else {
      out.append(text.substr(start, at - start));
    }
  }
  out.push_back(quote);
  return out;
}

absl::StatusOr<Text> Repr(Runtime& runtime, const Value& value) {
  std::string out;
  JINJA_RETURN_IF_ERROR(AppendRepr(runtime, value, out));
  JINJA_RETURN_IF_ERROR(runtime.CheckSize(out.size()));
  JINJA_RETURN_IF_ERROR(runtime.Touch(out.size()));
  return Text(std::move(out), !HoldsClientText(value));
}

absl::StatusOr<Text> ToText(Runtime& runtime, const Value& value) {
  if (value.is_string()) {
    return value.text();
  }
  if (value.is_undefined()) {
    return Text();
  }
  return Repr(runtime, value);
}

bool HoldsClientText(const Value& value) { return HoldsClientTextWithin(value, 0); }

Text EscapeHtml(const Text& text) {
  Text out;
  size_t copied = 0;
  const std::string& bytes = text.bytes();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char* entity = nullptr;
    switch (bytes[i]) {
      case '&': entity = "&amp;"; break;
      case '<': entity = "&lt;"; break;
      case '>': entity = "&gt;"; break;
      case '\'': entity = "&#39;"; break;
      case '"': entity = "&#34;"; break;
      default: continue;
    }
    out.AppendSlice(text, copied, i);
    out.Append(entity, text.FromTemplateAt(i));
    copied = i + 1;
  }
  out.AppendSlice(text, copied, bytes.size());
  out.set_markup(true);
  return out;
}

}  // namespace tessera::coordinator::jinja
