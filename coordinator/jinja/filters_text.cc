// Filters that make text.

#include <algorithm>

#include "coordinator/jinja/filters.h"
#include "coordinator/jinja/values/access.h"
#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/string_ops.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

using Result = absl::StatusOr<Value>;

template <Text (*kChange)(const Text&)>
Result Change(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("the filter", arguments, {}).status());
  JINJA_ASSIGN_OR_RETURN(const Text text, ToText(runtime, value));
  JINJA_RETURN_IF_ERROR(runtime.Touch(kCharacterWork * text.size()));
  return runtime.NewString(kChange(text));
}

Text Lower(const Text& text) { return ChangeCase(text, Case::kLower); }
Text Upper(const Text& text) { return ChangeCase(text, Case::kUpper); }
Text Escape(const Text& text) { return text.markup() ? text : EscapeHtml(text); }
Text Same(const Text& text) { return text; }

Text MarkSafe(const Text& text) {
  Text safe = text;
  safe.set_markup(true);
  return safe;
}

// Jinja's title: words begin after white space and -({[<.
Text Title(const Text& text) {
  const std::string& bytes = text.bytes();
  const auto breaks = [](uint32_t c) {
    return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  Text result;
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    size_t second = at;
    const bool gap = breaks(NextCodePoint(bytes, &second));
    for (at = second; at < bytes.size();) {
      size_t next = at;
      if (breaks(NextCodePoint(bytes, &next)) != gap) {
        break;
      }
      at = next;
    }
    result.Append(ChangeCase(text.Slice(begin, second), Case::kUpper));
    result.Append(ChangeCase(text.Slice(second, at), Case::kLower));
  }
  return result;
}

Result Trim(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("trim", arguments, {"chars"}));
  JINJA_ASSIGN_OR_RETURN(const Text text, ToText(runtime, value));
  const Text* chars = nullptr;
  if (bound.Optional(0) != nullptr) {
    JINJA_ASSIGN_OR_RETURN(chars, bound.String(0));
    JINJA_RETURN_IF_ERROR(runtime.Touch(chars->size()));
  }
  return runtime.NewString(Strip(text, chars, true, true));
}

Result ReplaceFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("replace", arguments, {"old", "new", "count"}, 2));
  JINJA_ASSIGN_OR_RETURN(Text text, ToText(runtime, value));
  JINJA_ASSIGN_OR_RETURN(const Text old_text, ToText(runtime, bound[0]));
  JINJA_ASSIGN_OR_RETURN(const Text new_text, ToText(runtime, bound[1]));
  Int count = -1;
  if (bound.Optional(2) != nullptr) {
    JINJA_ASSIGN_OR_RETURN(count, bound.Integer(2, -1));
  }
  text.set_markup(false);
  JINJA_ASSIGN_OR_RETURN(Text result, Replace(runtime, text, old_text, new_text, count));
  return runtime.NewString(std::move(result));
}

Result JoinFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("join", arguments, {"d", "attribute"}));
  JINJA_ASSIGN_OR_RETURN(const AttributePath path,
                         ParseAttributePath(bound.Has(1) ? bound[1] : Value::None()));
  Text separator;
  if (bound.Has(0)) {
    JINJA_ASSIGN_OR_RETURN(separator, ToText(runtime, bound[0]));
  }
  JINJA_ASSIGN_OR_RETURN(const auto items, ToItems(runtime, value));
  Text result;
  for (size_t i = 0; i < items.size(); ++i) {
    JINJA_RETURN_IF_ERROR(runtime.Step());
    JINJA_ASSIGN_OR_RETURN(const Value item, FollowPath(runtime, items[i], path));
    JINJA_ASSIGN_OR_RETURN(const Text text, ToText(runtime, item));
    if (i != 0) {
      result.Append(separator);
    }
    result.Append(text);
    JINJA_RETURN_IF_ERROR(runtime.CheckSize(result.size()));
  }
  return runtime.NewString(std::move(result));
}

Result Indent(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("indent", arguments, {"width", "first", "blank"}));
  JINJA_RETURN_IF_ERROR(CheckDefined(value));
  if (!value.is_string()) {
    return RenderError(StrCat("indent: expected a string, not ", value.TypeName()));
  }
  const Text& text = value.text();
  Text indention("    ", true);
  if (bound.Has(0) && bound[0].is_string()) {
    indention = bound[0].text();
  } else if (bound.Has(0)) {
    JINJA_ASSIGN_OR_RETURN(const Int width, bound.Integer(0, 4));
    JINJA_ASSIGN_OR_RETURN(indention, Pad(runtime, Text(), width, Text(" ", true), 0));
  }
  const bool first = bound.Boolean(1, false);
  const bool blank = bound.Boolean(2, false);
  JINJA_RETURN_IF_ERROR(runtime.Touch(text.size()));
  // Jinja appends a line break before it splits, so the last line counts even if it is empty.
  std::vector<Line> lines = SplitLines(text.bytes());
  if (lines.empty() || lines.back().next != lines.back().end) {
    lines.push_back({text.size(), text.size(), text.size()});
  }
  Text result;
  for (size_t i = 0; i < lines.size(); ++i) {
    result.Append(i == 0 ? "" : "\n", true);
    const bool empty = lines[i].begin == lines[i].end;
    if (i == 0 ? first : blank || !empty) {
      result.Append(indention);
    }
    result.AppendSlice(text, lines[i].begin, lines[i].end);
    JINJA_RETURN_IF_ERROR(runtime.CheckSize(result.size()));
  }
  result.set_markup(text.markup());
  return runtime.NewString(std::move(result));
}

absl::Status ReadSeparators(const Value& separators, JsonFormat& format) {
  if (!separators.is_sequence() || separators.items().size() != 2 ||
      !separators.items()[0].is_string() || !separators.items()[1].is_string()) {
    return RenderError("tojson: separators must be two strings");
  }
  format.item_separator = separators.items()[0].bytes();
  format.key_separator = separators.items()[1].bytes();
  return absl::OkStatus();
}

Result ToJsonFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(
      const Bound bound,
      Bound::To("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonFormat format;
  format.ensure_ascii = bound.Boolean(0, false);
  format.sort_keys = bound.Boolean(3, false);
  if (const Value* indent = bound.Optional(1)) {
    format.pretty = true;
    format.item_separator.assign(1, ',');
    if (indent->is_string()) {
      format.indent = indent->bytes();
    } else {
      JINJA_ASSIGN_OR_RETURN(const Int width, bound.Integer(1, 0));
      JINJA_ASSIGN_OR_RETURN(const Text spaces, Pad(runtime, Text(), width, Text(" ", true), 0));
      format.indent = spaces.bytes();
    }
  }
  if (const Value* separators = bound.Optional(2)) {
    JINJA_RETURN_IF_ERROR(ReadSeparators(*separators, format));
  }
  JINJA_ASSIGN_OR_RETURN(Text json, ToJson(runtime, value, format));
  return runtime.NewString(std::move(json));
}

constexpr FilterEntry kFilters[] = {
    {"capitalize", Change<Capitalize>},
    {"e", Change<Escape>},
    {"escape", Change<Escape>},
    {"indent", Indent},
    {"join", JoinFilter},
    {"lower", Change<Lower>},
    {"replace", ReplaceFilter},
    {"safe", Change<MarkSafe>},
    {"string", Change<Same>},
    {"title", Change<Title>},
    {"tojson", ToJsonFilter},
    {"trim", Trim},
    {"upper", Change<Upper>},
};

}  // namespace

std::span<const FilterEntry> TextFilters() { return kFilters; }

}  // namespace tessera::coordinator::jinja
