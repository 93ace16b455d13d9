#include "coordinator/jinja/globals.h"

#include <ctime>
#include <optional>

#include "coordinator/jinja/values/access.h"
#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// The sandbox's own limit on range().
constexpr Int kMaxRange = 100'000;

class Function : public Object {
 public:
  using Body = Result (*)(Runtime& runtime, const Arguments& arguments);
  explicit Function(Body body) : body_(body) {}
  std::string_view TypeName() const override { return "function"; }
  bool Callable() const override { return true; }
  Result Call(Runtime& runtime, const Arguments& arguments) override {
    return body_(runtime, arguments);
  }

 private:
  Body body_;
};

Result MakeRange(Runtime&, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("range", arguments, {"start", "stop", "step"}, 1));
  for (const Value& argument : arguments.positional) {
    JINJA_RETURN_IF_ERROR(CheckDefined(argument));
  }
  Range range;
  JINJA_ASSIGN_OR_RETURN(range.start, bound.Integer(0, 0));
  if (bound.Has(1)) {
    JINJA_ASSIGN_OR_RETURN(range.stop, bound.Integer(1, 0));
  } else {
    range.stop = std::exchange(range.start, 0);
  }
  JINJA_ASSIGN_OR_RETURN(range.step, bound.Integer(2, 1));
  if (range.step == 0) {
    return RenderError("range() arg 3 must not be zero");
  }
  if (range.Length() > kMaxRange) {
    return RenderError(
        StrCat("range is beyond the limit of ", static_cast<int64_t>(kMaxRange), " items"));
  }
  return Value::FromRange(range);
}

// Python's dict(mapping or pairs, **names).
absl::StatusOr<Dict> DictFrom(Runtime& runtime, const Arguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) {
    return RenderError("dict expected at most 1 argument");
  }
  if (!arguments.positional.empty() && arguments.positional[0].is_dict()) {
    const Dict& given = arguments.positional[0].dict();
    JINJA_RETURN_IF_ERROR(runtime.Touch(given.size() * sizeof(Dict::Entry)));
    for (const auto& [key, value] : given.entries()) {
      dict.Set(key, value);
    }
  } else if (!arguments.positional.empty()) {
    JINJA_ASSIGN_OR_RETURN(const auto pairs, ToItems(runtime, arguments.positional[0]));
    for (const Value& pair : pairs) {
      JINJA_ASSIGN_OR_RETURN(const auto parts, ToItems(runtime, pair));
      if (parts.size() != 2) {
        return RenderError("dict() needs pairs of a key and a value");
      }
      JINJA_RETURN_IF_ERROR(CheckHashable(runtime, parts[0]));
      dict.Set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.keyword) {
    dict.Set(Value::Literal(name), value);
  }
  return dict;
}

Result MakeDict(Runtime& runtime, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(Dict dict, DictFrom(runtime, arguments));
  return runtime.NewDict(std::move(dict));
}

absl::Status CheckNamespaceName(std::string_view name) {
  return name.starts_with('_')
             ? RenderError(StrCat("a namespace cannot hold '", name,
                                  "': names with a leading underscore are unsafe"))
             : absl::OkStatus();
}

Result MakeNamespace(Runtime& runtime, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(Dict attributes, DictFrom(runtime, arguments));
  for (const auto& entry : attributes.entries()) {
    if (entry.first.is_string()) {
      JINJA_RETURN_IF_ERROR(CheckNamespaceName(entry.first.bytes()));
    }
  }
  JINJA_ASSIGN_OR_RETURN(Namespace * made, runtime.NewObject<Namespace>(std::move(attributes)));
  return Value::FromObject(made);
}

Result RaiseException(Runtime& runtime, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("raise_exception", arguments, {"message"}, 1));
  JINJA_ASSIGN_OR_RETURN(const Text message, ToText(runtime, bound[0]));
  return RenderError(message.bytes());
}

// The time is naive, as datetime.now() is: no zone, no microseconds.
std::string ForNaiveTime(const std::string& format) {
  std::string plain;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      plain.push_back(format[i]);
      continue;
    }
    const char letter = format[++i];
    if (letter == 'f') {
      plain.append("000000");
    } else if (letter != 'z' && letter != 'Z') {
      plain.push_back('%');
      plain.push_back(letter);
    }
  }
  return plain;
}

Result StrftimeNow(Runtime& runtime, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("strftime_now", arguments, {"format"}, 1));
  JINJA_RETURN_IF_ERROR(CheckDefined(bound[0]));
  JINJA_ASSIGN_OR_RETURN(const Text* format, bound.String(0));
  if (format->size() > 4096 || format->bytes().find('\0') != std::string::npos) {
    return RenderError("strftime_now: the format is longer than 4096 bytes or holds a zero byte");
  }
  const auto now = static_cast<std::time_t>(runtime.now_unix_seconds());
  std::tm time{};
  gmtime_r(&now, &time);
  // A leading space tells an empty result from one that does not fit.
  const std::string plain = StrCat(" ", ForNaiveTime(format->bytes()));
  std::string out(plain.size() * 64 + 64, '\0');
  out.resize(std::strftime(out.data(), out.size(), plain.c_str(), &time));
  if (out.empty()) {
    return RenderError("strftime_now: the result is too long");
  }
  return runtime.NewString(Text(out.substr(1), format->AllFromTemplate()));
}

constexpr std::pair<std::string_view, Function::Body> kFunctions[] = {
    {"range", MakeRange},          {"dict", MakeDict},
    {"namespace", MakeNamespace},  {"raise_exception", RaiseException},
    {"strftime_now", StrftimeNow},
};

}  // namespace

absl::StatusOr<std::optional<Value>> Namespace::Attribute(Runtime&, std::string_view name) {
  const Value* found = attributes_.Find(name);
  return found == nullptr ? std::optional<Value>() : std::optional<Value>(*found);
}

absl::Status Namespace::Set(Runtime& runtime, const std::string& name, Value value) {
  JINJA_RETURN_IF_ERROR(CheckNamespaceName(name));
  JINJA_RETURN_IF_ERROR(runtime.Touch(sizeof(Dict::Entry)));
  attributes_.Set(Value::Literal(name), std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<Text> Namespace::Repr(Runtime& runtime) {
  JINJA_RETURN_IF_ERROR(runtime.Touch(attributes_.size() * sizeof(Dict::Entry)));
  const Value copy = Value::Dictionary(std::make_shared<const Dict>(attributes_));
  JINJA_ASSIGN_OR_RETURN(const Text text, jinja::Repr(runtime, copy));
  return Text(StrCat("<Namespace ", text.bytes(), ">"), text.AllFromTemplate());
}

absl::StatusOr<std::vector<std::pair<std::string_view, Value>>> MakeGlobals(Runtime& runtime) {
  std::vector<std::pair<std::string_view, Value>> globals;
  for (const auto& [name, body] : kFunctions) {
    JINJA_ASSIGN_OR_RETURN(Function * function, runtime.NewObject<Function>(body));
    globals.emplace_back(name, Value::FromObject(function));
  }
  return globals;
}

}  // namespace tessera::coordinator::jinja
