// Python's json.dumps, as transformers gives it to templates.

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/unicode.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

void AppendEscape(uint32_t unit, std::string& out) {
  char escape[8];
  std::snprintf(escape, sizeof(escape), "\\u%04x", unit & 0xFFFF);
  out.append(escape);
}

void AppendQuoted(std::string_view text, bool ensure_ascii, std::string& out) {
  out.push_back('"');
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const uint32_t c = NextCodePoint(text, &at);
    switch (c) {
      case '"': out.append("\\\""); continue;
      case '\\': out.append("\\\\"); continue;
      case '\n': out.append("\\n"); continue;
      case '\r': out.append("\\r"); continue;
      case '\t': out.append("\\t"); continue;
      case '\b': out.append("\\b"); continue;
      case '\f': out.append("\\f"); continue;
      default: break;
    }
    if (c >= 0x10000 && ensure_ascii) {
      AppendEscape(0xD800 + ((c - 0x10000) >> 10), out);
      AppendEscape(0xDC00 + ((c - 0x10000) & 0x3FF), out);
    } else if (c < 0x20 || (ensure_ascii && c > 0x7E)) {
      // With ensure_ascii Python keeps ' ' to '~'; without it only control characters go.
      AppendEscape(c, out);
    } else {
      out.append(text.substr(start, at - start));
    }
  }
  out.push_back('"');
}

std::string JsonFloat(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value < 0 ? "-Infinity" : "Infinity";
  }
  return FloatToString(value);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonFormat& format) : runtime_(runtime), format_(format) {}

  absl::Status Write(const Value& value) {
    const Runtime::Level level(runtime_);
    if (!level.ok()) {
      return Runtime::TooDeep();
    }
    JINJA_RETURN_IF_ERROR(runtime_.Step());
    JINJA_RETURN_IF_ERROR(runtime_.CheckSize(out_.size()));
    switch (value.kind()) {
      case Kind::kNone: out_.append("null"); break;
      case Kind::kBool: out_.append(value.bool_value() ? "true" : "false"); break;
      case Kind::kInt: out_.append(IntToString(value.int_value())); break;
      case Kind::kFloat: out_.append(JsonFloat(value.float_value())); break;
      case Kind::kString:
        JINJA_RETURN_IF_ERROR(runtime_.Touch(value.bytes().size()));
        AppendQuoted(value.bytes(), format_.ensure_ascii, out_);
        break;
      case Kind::kList:
      case Kind::kTuple: return WriteList(value.items());
      case Kind::kDict: return WriteDict(value.dict());
      default:
        return RenderError(
            StrCat("Object of type ", value.TypeName(), " is not JSON serializable",
                   value.is_undefined() ? StrCat(" (", value.undefined_message(), ")") : ""));
    }
    return absl::OkStatus();
  }

  std::string Take() { return std::move(out_); }

 private:
  absl::Status NewLine() {
    if (format_.pretty) {
      JINJA_RETURN_IF_ERROR(
          runtime_.CheckSize(out_.size() + format_.indent.size() * static_cast<size_t>(level_)));
      out_.push_back('\n');
      for (int i = 0; i < level_; ++i) {
        out_.append(format_.indent);
      }
    }
    return absl::OkStatus();
  }

  absl::Status WriteList(const std::vector<Value>& items) {
    out_.push_back('[');
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      out_.append(i == 0 ? "" : format_.item_separator);
      JINJA_RETURN_IF_ERROR(NewLine());
      JINJA_RETURN_IF_ERROR(Write(items[i]));
    }
    --level_;
    if (!items.empty()) {
      JINJA_RETURN_IF_ERROR(NewLine());
    }
    out_.push_back(']');
    return absl::OkStatus();
  }

  absl::Status WriteKey(const Value& key) {
    switch (key.kind()) {
      case Kind::kString: AppendQuoted(key.bytes(), format_.ensure_ascii, out_); break;
      case Kind::kNone: out_.append("\"null\""); break;
      case Kind::kBool: out_.append(key.bool_value() ? "\"true\"" : "\"false\""); break;
      case Kind::kInt: out_.append(StrCat("\"", IntToString(key.int_value()), "\"")); break;
      case Kind::kFloat: out_.append(StrCat("\"", JsonFloat(key.float_value()), "\"")); break;
      default:
        return RenderError(
            StrCat("keys must be str, int, float, bool or None, not ", key.TypeName()));
    }
    return absl::OkStatus();
  }

  absl::Status WriteDict(const Dict& dict) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) {
      entries.push_back(&entry);
    }
    if (format_.sort_keys) {
      JINJA_RETURN_IF_ERROR(SortByKey(entries));
    }
    out_.push_back('{');
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      out_.append(i == 0 ? "" : format_.item_separator);
      JINJA_RETURN_IF_ERROR(NewLine());
      JINJA_RETURN_IF_ERROR(WriteKey(entries[i]->first));
      out_.append(format_.key_separator);
      JINJA_RETURN_IF_ERROR(Write(entries[i]->second));
    }
    --level_;
    if (!entries.empty()) {
      JINJA_RETURN_IF_ERROR(NewLine());
    }
    out_.push_back('}');
    return absl::OkStatus();
  }

  absl::Status SortByKey(std::vector<const Dict::Entry*>& entries) {
    if (entries.size() < 2) {
      return absl::OkStatus();
    }
    // Python compares the keys as they are, so all must be strings or all numbers.
    if (!entries.front()->first.is_string() && !entries.front()->first.is_number()) {
      return RenderError("tojson: cannot sort keys that are neither strings nor numbers");
    }
    for (const Dict::Entry* entry : entries) {
      JINJA_RETURN_IF_ERROR(Compare(runtime_, entries.front()->first, entry->first).status());
    }
    std::stable_sort(
        entries.begin(), entries.end(), [](const Dict::Entry* a, const Dict::Entry* b) {
          return a->first.is_string() ? a->first.bytes() < b->first.bytes()
                                      : a->first.float_value() < b->first.float_value();
        });
    return absl::OkStatus();
  }

  Runtime& runtime_;
  const JsonFormat& format_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

absl::StatusOr<Text> ToJson(Runtime& runtime, const Value& value, const JsonFormat& format) {
  JsonWriter writer(runtime, format);
  JINJA_RETURN_IF_ERROR(writer.Write(value));
  std::string json = writer.Take();
  JINJA_RETURN_IF_ERROR(runtime.CheckSize(json.size()));
  JINJA_RETURN_IF_ERROR(runtime.Touch(json.size()));
  return Text(std::move(json), !HoldsClientText(value));
}

}  // namespace tessera::coordinator::jinja
