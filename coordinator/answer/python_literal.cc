#include "coordinator/answer/python_literal.h"

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "coordinator/answer/json_scanner.h"

namespace tessera::coordinator {
namespace {

constexpr int kMaxDepth = 32;

}  // namespace

void PythonReader::SkipSpace() {
  while (at_ < text_.size() && absl::ascii_isspace(text_[at_])) ++at_;
}

bool PythonReader::Peek(char c) {
  SkipSpace();
  return at_ < text_.size() && text_[at_] == c;
}

bool PythonReader::Take(char c) {
  if (!Peek(c)) return false;
  ++at_;
  return true;
}

std::string PythonReader::Name() {
  SkipSpace();
  const size_t begin = at_;
  while (at_ < text_.size() && (absl::ascii_isalnum(text_[at_]) || text_[at_] == '_' ||
                                text_[at_] == '.' || text_[at_] == '-'))
    ++at_;
  ok_ = ok_ && at_ > begin;
  return std::string(text_.substr(begin, at_ - begin));
}

std::string PythonReader::Value(int depth) {
  SkipSpace();
  if (!ok_ || at_ == text_.size() || depth > kMaxDepth) {
    ok_ = false;
    return "";
  }
  const char c = text_[at_];
  if (c == '"' || c == '\'') return JsonString(String());
  if (c == '[' || c == '(') return List(c == '[' ? ']' : ')', depth);
  if (c == '{') return Dict(depth);
  const size_t begin = at_;
  while (at_ < text_.size() && (absl::ascii_isalnum(text_[at_]) || text_[at_] == '+' ||
                                text_[at_] == '-' || text_[at_] == '.'))
    ++at_;
  const std::string_view word = text_.substr(begin, at_ - begin);
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  ok_ = ok_ && IsJsonNumber(word);
  return std::string(word);
}

std::string PythonReader::List(char end, int depth) {
  std::string json = "[";
  ++at_;
  while (ok_ && !Peek(end)) {
    if (json.size() > 1) json += ", ";
    json += Value(depth + 1);
    if (!Take(',')) break;
  }
  Expect(end);
  return json + "]";
}

std::string PythonReader::Dict(int depth) {
  std::string json = "{";
  ++at_;
  while (ok_ && !Peek('}')) {
    if (json.size() > 1) json += ", ";
    ok_ = Peek('"') || Peek('\'');
    if (!ok_) break;
    absl::StrAppend(&json, JsonString(String()), ": ");
    Expect(':');
    json += Value(depth + 1);
    if (!Take(',')) break;
  }
  Expect('}');
  return json + "}";
}

std::string PythonReader::String() {
  const char quote = text_[at_++];
  std::string value;
  for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
    if (text_[at_] != '\\' || at_ + 1 == text_.size()) {
      value.push_back(text_[at_]);
      continue;
    }
    const char escape = text_[++at_];
    switch (escape) {
      case 'n': value.push_back('\n'); break;
      case 't': value.push_back('\t'); break;
      case 'r': value.push_back('\r'); break;
      case '\\':
      case '\'':
      case '"': value.push_back(escape); break;
      default: value += {'\\', escape};
    }
  }
  ok_ = ok_ && at_ < text_.size();
  ++at_;
  return value;
}

std::optional<std::string> PythonToJson(std::string_view text) {
  PythonReader reader(text);
  std::string json = reader.Value();
  if (!reader.ok() || !reader.at_end()) return std::nullopt;
  return json;
}

std::string JsonString(std::string_view text) {
  using Json = nlohmann::ordered_json;
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool IsJson(std::string_view text) {
  return text.find('\0') == std::string_view::npos && nlohmann::json::accept(text);
}

}  // namespace tessera::coordinator
