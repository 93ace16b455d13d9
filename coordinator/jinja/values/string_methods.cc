// str's methods: arguments in, string_ops.h does the work.

#include <algorithm>
#include <string>

#include "coordinator/jinja/values/access.h"
#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/format.h"
#include "coordinator/jinja/values/methods.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/string_ops.h"
#include "coordinator/jinja/values/unicode.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Text Escaped(const Text& self, const Text& argument) {
  return self.markup() && !argument.markup() ? EscapeHtml(argument) : argument;
}

// A method without arguments that maps text to text.
template <Text (*kChange)(const Text&)>
Result Change(Runtime& runtime, const Value& self, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("the str method", arguments, {}).status());
  JINJA_RETURN_IF_ERROR(runtime.Touch(kCharacterWork * self.bytes().size()));
  return runtime.NewString(kChange(self.text()));
}

Text Lower(const Text& text) { return ChangeCase(text, Case::kLower); }
Text Upper(const Text& text) { return ChangeCase(text, Case::kUpper); }

template <bool kLeft, bool kRight>
Result StripMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("strip", arguments, {"chars"}));
  const Text* chars = nullptr;
  if (bound.Optional(0) != nullptr) {
    JINJA_ASSIGN_OR_RETURN(chars, bound.String(0));
    JINJA_RETURN_IF_ERROR(runtime.Touch(chars->size()));
  }
  return runtime.NewString(Strip(self.text(), chars, kLeft, kRight));
}

template <bool kFromRight>
Result SplitMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("split", arguments, {"sep", "maxsplit"}));
  const Text* separator = nullptr;
  if (bound.Optional(0) != nullptr) {
    JINJA_ASSIGN_OR_RETURN(separator, bound.String(0));
  }
  JINJA_ASSIGN_OR_RETURN(const Int max_splits, bound.Integer(1, -1));
  JINJA_ASSIGN_OR_RETURN(auto pieces,
                         Split(runtime, self.text(), separator, max_splits, kFromRight));
  return runtime.NewList(std::move(pieces));
}

Result SplitLinesMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("splitlines", arguments, {"keepends"}));
  const bool keep_ends = bound.Boolean(0, false);
  JINJA_RETURN_IF_ERROR(runtime.Touch(self.bytes().size()));
  std::vector<Value> lines;
  for (const Line& line : SplitLines(self.bytes())) {
    JINJA_ASSIGN_OR_RETURN(Value piece, runtime.NewString(self.text().Slice(
                                            line.begin, keep_ends ? line.next : line.end)));
    lines.push_back(std::move(piece));
  }
  return runtime.NewList(std::move(lines));
}

// The bytes that Python's optional [start, end) arguments of find, count and startswith leave.
struct Window {
  size_t begin = 0;
  size_t end = 0;
  bool valid = true;  // false: start is behind the end, where not even "" is found
};

absl::StatusOr<Int> WindowEnd(const Bound& bound, size_t i, Int fallback) {
  if (bound.Optional(i) == nullptr) {
    return fallback;
  }
  return bound.Integer(i, fallback);
}

absl::StatusOr<Window> WindowOf(Runtime& runtime, const std::string& bytes, const Bound& bound) {
  if (!bound.Has(1) && !bound.Has(2)) {
    return Window{0, bytes.size(), true};
  }
  JINJA_RETURN_IF_ERROR(runtime.Touch(bytes.size()));
  const Int size = static_cast<Int>(CountCodePoints(bytes));
  JINJA_ASSIGN_OR_RETURN(Int start, WindowEnd(bound, 1, 0));
  JINJA_ASSIGN_OR_RETURN(Int end, WindowEnd(bound, 2, size));
  start = std::max<Int>(start < 0 ? start + size : start, 0);
  end = std::min(std::max<Int>(end < 0 ? end + size : end, 0), size);
  if (start > end) {
    return Window{0, 0, false};
  }
  const size_t begin = OffsetOfCodePoint(bytes, static_cast<size_t>(start));
  return Window{begin, OffsetOfCodePoint(bytes, static_cast<size_t>(end - start), begin), true};
}

size_t FindLast(std::string_view text, std::string_view needle) {
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_needle(needle.rbegin(), needle.rend());
  const size_t found = FindBytes(reversed_text, reversed_needle);
  return found == std::string::npos ? found : text.size() - found - needle.size();
}

template <bool kFromRight, bool kMustExist>
Result Find(Runtime& runtime, const Value& self, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("find", arguments, {"sub", "start", "end"}, 1));
  JINJA_ASSIGN_OR_RETURN(const Text* needle, bound.String(0));
  JINJA_RETURN_IF_ERROR(runtime.Touch(self.bytes().size()));
  JINJA_ASSIGN_OR_RETURN(const Window window, WindowOf(runtime, self.bytes(), bound));
  const std::string_view all = self.bytes();
  const std::string_view text = all.substr(window.begin, window.end - window.begin);
  const size_t found = !window.valid ? std::string::npos
                       : kFromRight  ? FindLast(text, needle->bytes())
                                     : FindBytes(text, needle->bytes());
  if (found == std::string::npos) {
    return kMustExist ? Result(RenderError("substring not found")) : Result(Value::Integer(-1));
  }
  return Value::Integer(static_cast<Int>(CountCodePoints(all.substr(0, window.begin + found))));
}

Result Count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("count", arguments, {"sub", "start", "end"}, 1));
  JINJA_ASSIGN_OR_RETURN(const Text* needle, bound.String(0));
  JINJA_RETURN_IF_ERROR(runtime.Touch(self.bytes().size()));
  JINJA_ASSIGN_OR_RETURN(const Window window, WindowOf(runtime, self.bytes(), bound));
  if (!window.valid) {
    return Value::Integer(0);
  }
  const std::string_view text =
      std::string_view(self.bytes()).substr(window.begin, window.end - window.begin);
  if (needle->empty()) {
    return Value::Integer(static_cast<Int>(CountCodePoints(text)) + 1);
  }
  Int count = 0;
  for (size_t at = 0; (at = FindBytes(text, needle->bytes(), at)) != std::string::npos;) {
    at += needle->size();
    ++count;
  }
  return Value::Integer(count);
}

template <bool kEnd>
Result Affix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To(kEnd ? "endswith" : "startswith", arguments,
                                                      {"affix", "start", "end"}, 1));
  JINJA_ASSIGN_OR_RETURN(const Window window, WindowOf(runtime, self.bytes(), bound));
  const std::string_view text =
      std::string_view(self.bytes()).substr(window.begin, window.end - window.begin);
  const std::vector<Value> affixes =
      bound[0].is_tuple() ? bound[0].items() : std::vector<Value>{bound[0]};
  for (const Value& affix : affixes) {
    JINJA_RETURN_IF_ERROR(CheckDefined(affix));
    if (!affix.is_string()) {
      return RenderError(StrCat(kEnd ? "endswith" : "startswith",
                                " first arg must be str or a tuple of str, not ",
                                affix.TypeName()));
    }
    JINJA_RETURN_IF_ERROR(runtime.Step());
    if (window.valid && (kEnd ? text.ends_with(affix.bytes()) : text.starts_with(affix.bytes()))) {
      return Value::Bool(true);
    }
  }
  return Value::Bool(false);
}

Result ReplaceMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("replace", arguments, {"old", "new", "count"}, 2));
  JINJA_ASSIGN_OR_RETURN(const Text* old_text, bound.String(0));
  JINJA_ASSIGN_OR_RETURN(const Text* new_text, bound.String(1));
  JINJA_ASSIGN_OR_RETURN(const Int count, bound.Integer(2, -1));
  JINJA_ASSIGN_OR_RETURN(Text result, Replace(runtime, self.text(), *old_text,
                                              Escaped(self.text(), *new_text), count));
  return runtime.NewString(std::move(result));
}

Result JoinMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("join", arguments, {"iterable"}, 1));
  JINJA_ASSIGN_OR_RETURN(const auto items, ToItems(runtime, bound[0]));
  JINJA_ASSIGN_OR_RETURN(Text result, Join(runtime, self.text(), items));
  return runtime.NewString(std::move(result));
}

template <bool kSuffix>
Result RemoveAffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("removeprefix", arguments, {"affix"}, 1));
  JINJA_ASSIGN_OR_RETURN(const Text* affix, bound.String(0));
  const Text& text = self.text();
  const std::string_view bytes = text.bytes();
  const bool has = kSuffix ? bytes.ends_with(affix->bytes()) : bytes.starts_with(affix->bytes());
  const size_t cut = has ? affix->size() : 0;
  return runtime.NewString(kSuffix ? text.Slice(0, text.size() - cut)
                                   : text.Slice(cut, text.size()));
}

// Whether there are characters and all are of the class.
template <bool (*kClass)(uint32_t)>
Result All(Runtime& runtime, const Value& self, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("the str method", arguments, {}).status());
  JINJA_RETURN_IF_ERROR(runtime.Touch(self.bytes().size()));
  for (size_t at = 0; at < self.bytes().size();) {
    if (!kClass(NextCodePoint(self.bytes(), &at))) {
      return Value::Bool(false);
    }
  }
  return Value::Bool(!self.bytes().empty());
}

Result IsAsciiMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("isascii", arguments, {}).status());
  JINJA_RETURN_IF_ERROR(runtime.Touch(self.bytes().size()));
  return Value::Bool(IsAscii(self.bytes()));
}

// Some cased character, and none of the other case.
template <bool kUpper>
Result AllCased(Runtime& runtime, const Value& self, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("the str method", arguments, {}).status());
  JINJA_RETURN_IF_ERROR(runtime.Touch(self.bytes().size()));
  bool some = false;
  for (size_t at = 0; at < self.bytes().size();) {
    const uint32_t c = NextCodePoint(self.bytes(), &at);
    if (kUpper ? IsLower(c) : IsUpper(c)) {
      return Value::Bool(false);
    }
    some = some || (kUpper ? IsUpper(c) : IsLower(c));
  }
  return Value::Bool(some);
}

Result FormatMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return FormatBraces(runtime, self.text(), arguments);
}

constexpr MethodEntry kStringMethods[] = {
    {"capitalize", Change<Capitalize>},
    {"count", Count},
    {"endswith", Affix<true>},
    {"find", Find<false, false>},
    {"format", FormatMethod},
    {"index", Find<false, true>},
    {"isalnum", All<IsAlphaNumeric>},
    {"isalpha", All<IsAlpha>},
    {"isascii", IsAsciiMethod},
    {"isdecimal", All<IsDecimal>},
    {"isdigit", All<IsDigit>},
    {"islower", AllCased<false>},
    {"isspace", All<IsSpace>},
    {"isupper", AllCased<true>},
    {"join", JoinMethod},
    {"lower", Change<Lower>},
    {"lstrip", StripMethod<true, false>},
    {"removeprefix", RemoveAffix<false>},
    {"removesuffix", RemoveAffix<true>},
    {"replace", ReplaceMethod},
    {"rfind", Find<true, false>},
    {"rindex", Find<true, true>},
    {"rsplit", SplitMethod<true>},
    {"rstrip", StripMethod<false, true>},
    {"split", SplitMethod<false>},
    {"splitlines", SplitLinesMethod},
    {"startswith", Affix<false>},
    {"strip", StripMethod<true, true>},
    {"title", Change<TitleCase>},
    {"upper", Change<Upper>},
};

}  // namespace

Method FindStringMethod(std::string_view name) {
  const auto* found = std::lower_bound(
      std::begin(kStringMethods), std::end(kStringMethods), name,
      [](const MethodEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != std::end(kStringMethods) && found->name == name ? found->method : nullptr;
}

}  // namespace tessera::coordinator::jinja
