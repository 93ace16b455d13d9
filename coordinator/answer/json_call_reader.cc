#include "coordinator/answer/json_call_reader.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "coordinator/answer/trim.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 2> kNameKeys = {"name", "tool_name"};
constexpr std::array<std::string_view, 2> kArgumentKeys = {"arguments", "parameters"};
constexpr std::array<std::string_view, 3> kOtherKeys = {"id", "type", "tool_call_id"};

bool IsOneOf(std::string_view key, std::span<const std::string_view> keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

bool IsNumberByte(char c) { return absl::ascii_isalnum(c) || c == '-' || c == '+' || c == '.'; }

}  // namespace

JsonScanner::State JsonCallReader::Byte(char c, AnswerEvents& out) {
  using State = JsonScanner::State;
  const Before before = {scanner_.expects_key(), scanner_.expects_value(), scanner_.in_string(),
                         scanner_.depth()};
  if (before.depth == 0 && c != '{') return State::kBroken;
  const State state = scanner_.Byte(c);
  if (state == State::kBroken) return state;
  bool fits = true;
  if (in_key_) {
    key_.push_back(c);
    if (scanner_.expects_colon()) fits = EndKey();
  } else if (before.depth == 1 && before.key && c == '"') {
    in_key_ = true;
    key_ = c;
  } else if (in_value_ || (before.depth == 1 && before.value && !absl::ascii_isspace(c))) {
    fits = ValueByte(c, before, out);
  }
  if (fits && state == State::kComplete) fits = EndObject(out);
  return fits ? state : State::kBroken;
}

bool JsonCallReader::EndKey() {
  in_key_ = false;
  const Json key = Json::parse(key_, nullptr, /*allow_exceptions=*/false);
  if (!key.is_string()) return false;
  key_ = key.get<std::string>();
  return known_ == nullptr || IsOneOf(key_, kNameKeys) || IsOneOf(key_, kArgumentKeys) ||
         IsOneOf(key_, kOtherKeys);
}

bool JsonCallReader::ValueByte(char c, const Before& before, AnswerEvents& out) {
  if (!in_value_) {
    in_value_ = true;
    value_.clear();
    passes_on_ = IsOneOf(key_, kArgumentKeys) && c == '{' && !name_.empty() && !has_arguments_;
    if (passes_on_) Begin(out);
  }
  // A number ends before the byte that shows its end.
  const bool is_number = !value_.empty() && (value_[0] == '-' || absl::ascii_isdigit(value_[0]));
  if (is_number && !IsNumberByte(c)) return EndValue(out);
  const std::string written = before.string ? EscapedControl(c) : std::string(1, c);
  if (passes_on_) {
    out.Arguments(written);
  } else {
    value_ += written;
  }
  const bool ended = scanner_.depth() == 1 && scanner_.expects_comma();
  return !ended || EndValue(out);
}

bool JsonCallReader::EndValue(AnswerEvents& out) {
  in_value_ = false;
  if (IsOneOf(key_, kNameKeys)) {
    const Json name = Json::parse(value_, nullptr, /*allow_exceptions=*/false);
    if (!name.is_string() || name.get_ref<const std::string&>().empty() || !name_.empty())
      return false;
    name_ = name.get<std::string>();
    return known_ == nullptr || known_->Has(name_);
  }
  if (!IsOneOf(key_, kArgumentKeys)) return true;
  if (has_arguments_) return false;
  has_arguments_ = true;
  if (passes_on_) return true;
  // Some models write the object as a string with JSON, or null for none.
  Json arguments = Json::parse(value_, nullptr, /*allow_exceptions=*/false);
  if (arguments.is_null()) value_ = "{}";
  if (arguments.is_string()) {
    value_ = arguments.get<std::string>();
    if (Trim(value_).empty()) value_ = "{}";
    arguments = Json::parse(value_, nullptr, /*allow_exceptions=*/false);
    if (!arguments.is_object() && value_ != "{}") return false;
  } else if (!arguments.is_object() && !arguments.is_null()) {
    return false;
  }
  held_ = value_;
  if (name_.empty()) return true;
  Begin(out);
  out.Arguments(held_);
  return true;
}

void JsonCallReader::Begin(AnswerEvents& out) {
  begun_ = true;
  out.BeginCall(name_);
}

bool JsonCallReader::EndObject(AnswerEvents& out) {
  if (name_.empty() || (known_ != nullptr && !has_arguments_)) return false;
  if (!begun_) {
    Begin(out);
    out.Arguments(held_.empty() ? "{}" : held_);
  }
  out.EndCall();
  return true;
}

}  // namespace tessera::coordinator
