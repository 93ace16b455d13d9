// Filters for links and HTML: striptags, urlencode and xmlattr.

#include <string>

#include "coordinator/jinja/filters.h"
#include "coordinator/jinja/html_text.h"
#include "coordinator/jinja/values/access.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/string_ops.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result StripTagsFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("striptags", arguments, {}).status());
  JINJA_ASSIGN_OR_RETURN(const Text text, ToText(runtime, value));
  JINJA_RETURN_IF_ERROR(runtime.Touch(kCharacterWork * text.size()));
  return runtime.NewString(Text(UnescapeHtml(StripTags(text.bytes())), text.AllFromTemplate()));
}

// Python's urllib.parse.quote.
std::string Quote(std::string_view text, std::string_view safe, bool plus) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string quoted;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos ||
                       safe.find(c) != std::string_view::npos;
    if (plain) {
      quoted.push_back(c);
    } else if (plus && c == ' ') {
      quoted.push_back('+');
    } else {
      quoted.append({'%', kHex[byte >> 4], kHex[byte & 15]});
    }
  }
  return quoted;
}

// A text in full, or the pairs of a query.
Result UrlEncode(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("urlencode", arguments, {}).status());
  std::string out;
  if (value.is_string() || !IsIterable(value)) {
    JINJA_ASSIGN_OR_RETURN(const Text text, ToText(runtime, value));
    JINJA_RETURN_IF_ERROR(runtime.Touch(3 * text.size()));
    out = Quote(text.bytes(), "/", false);
    return runtime.NewString(Text(std::move(out), text.AllFromTemplate()));
  }
  bool from_template = true;
  std::vector<Value> items;
  if (value.is_dict()) {
    JINJA_ASSIGN_OR_RETURN(items, DictItems(runtime, value.dict()));
  } else {
    JINJA_ASSIGN_OR_RETURN(items, ToItems(runtime, value));
  }
  for (const Value& item : items) {
    JINJA_RETURN_IF_ERROR(runtime.Step());
    JINJA_ASSIGN_OR_RETURN(const auto pair, ToItems(runtime, item));
    if (pair.size() != 2) {
      return RenderError("urlencode: expected text, a mapping or a list of pairs");
    }
    for (size_t i = 0; i < 2; ++i) {
      JINJA_ASSIGN_OR_RETURN(const Text text, ToText(runtime, pair[i]));
      JINJA_RETURN_IF_ERROR(runtime.Touch(3 * text.size()));
      from_template = from_template && text.AllFromTemplate();
      out.append(i == 1 ? "=" : out.empty() ? "" : "&");
      out.append(Quote(text.bytes(), "", true));
    }
    JINJA_RETURN_IF_ERROR(runtime.CheckSize(out.size()));
  }
  return runtime.NewString(Text(std::move(out), from_template));
}

Result XmlAttributes(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("xmlattr", arguments, {"autospace"}));
  if (!value.is_dict()) {
    return RenderError(StrCat("xmlattr: expected a mapping, not ", value.TypeName()));
  }
  Text out;
  for (const auto& [key, item] : value.dict().entries()) {
    JINJA_RETURN_IF_ERROR(runtime.Step());
    if (item.is_none() || item.is_undefined()) continue;
    if (!key.is_string()) {
      return RenderError("xmlattr: attribute names must be strings");
    }
    if (key.bytes().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      return RenderError(StrCat("Invalid character in attribute name: ", QuoteString(key.bytes())));
    }
    JINJA_ASSIGN_OR_RETURN(const Text text, ToText(runtime, item));
    const bool space = !out.empty() || bound.Boolean(0, true);
    out.Append(space ? " " : "", true);
    out.Append(key.text().markup() ? key.text() : EscapeHtml(key.text()));
    out.Append("=\"", true);
    out.Append(text.markup() ? text : EscapeHtml(text));
    out.Append("\"", true);
    JINJA_RETURN_IF_ERROR(runtime.CheckSize(out.size()));
  }
  out.set_markup(false);
  return runtime.NewString(std::move(out));
}

constexpr FilterEntry kFilters[] = {
    {"striptags", StripTagsFilter},
    {"urlencode", UrlEncode},
    {"xmlattr", XmlAttributes},
};

}  // namespace

std::span<const FilterEntry> WebFilters() { return kFilters; }

}  // namespace tessera::coordinator::jinja
