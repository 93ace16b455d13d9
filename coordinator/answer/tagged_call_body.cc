#include "coordinator/answer/tagged_call_body.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/answer/json_scanner.h"
#include "coordinator/answer/python_literal.h"
#include "coordinator/answer/trim.h"

namespace tessera::coordinator {
namespace {

constexpr size_t kMaxNameBytes = 512;

class TaggedCallBody final : public CallBody {
 public:
  TaggedCallBody(const TaggedCallOptions& options, const ToolSchemas& schemas)
      : options_(options),
        schemas_(schemas),
        at_(options.name_opening.empty() ? At::kName : At::kFunction) {}

  State Byte(char c, AnswerEvents& out) override {
    held_.push_back(c);
    switch (at_) {
      case At::kFunction: return FunctionByte();
      case At::kName: return NameByte(out);
      case At::kParameter: return ParameterByte(out);
      case At::kKey: return KeyByte();
      case At::kValueOpening: return ValueOpeningByte();
      case At::kValue: return ValueByte(out);
      case At::kBehindValue: return ByteBehindValue(out);
    }
    return State::kNone;
  }

  bool Finish(AnswerEvents&) override {
    return at_ == At::kFunction && calls_ > 0 && Trim(held_).empty();
  }

 private:
  enum class At { kFunction, kName, kParameter, kKey, kValueOpening, kValue, kBehindValue };

  // Without leading white space.
  std::string_view Held() const { return TrimLeft(held_); }
  static bool MayBecome(std::string_view text, std::string_view tag) {
    return !tag.empty() && tag.starts_with(text);
  }
  void Go(At at) {
    at_ = at;
    held_.clear();
  }

  // A function, or the end of the body.
  State FunctionByte() {
    const std::string_view held = Held();
    if (held.empty()) return State::kOpen;
    if (held == options_.closing) return calls_ > 0 ? State::kDone : State::kNone;
    if (!options_.name_opening.empty() && held == options_.name_opening) {
      Go(At::kName);
      return State::kOpen;
    }
    if (MayBecome(held, options_.closing) || MayBecome(held, options_.name_opening))
      return State::kOpen;
    if (calls_ == 0) return State::kNone;
    unread_ = held_;
    return State::kDone;
  }

  State NameByte(AnswerEvents& out) {
    if (held_.size() > kMaxNameBytes) return State::kNone;
    const std::string_view held = held_;
    std::string rest;
    size_t end = std::string_view::npos;
    if (options_.name_opening.empty()) {
      const std::string_view trimmed = Held();
      if (trimmed.empty()) return State::kOpen;
      end = held.find_first_of("\n<", held.size() - trimmed.size());
      if (end != std::string_view::npos && held[end] == '<') rest = held.substr(end);
    } else if (held.ends_with(options_.name_closing)) {
      end = held.size() - options_.name_closing.size();
    }
    if (end == std::string_view::npos) return State::kOpen;
    name_ = Trim(held.substr(0, end));
    if (name_.empty() || name_.find_first_of(" \n\t\"'<>{}[](),") != std::string::npos)
      return State::kNone;
    out.BeginCall(name_);
    keys_ = 0;
    Go(At::kParameter);
    held_ = rest;
    return State::kOpen;
  }

  // A parameter, or the function's end.
  State ParameterByte(AnswerEvents& out) {
    const std::string_view held = Held();
    if (held.empty()) return State::kOpen;
    if (held == options_.key_opening) {
      Go(At::kKey);
      return State::kOpen;
    }
    if (EndsFunction(held)) return EndFunction(held, out);
    // A value's closing tag that came twice.
    if (keys_ > 0 && held == options_.value_closing) {
      held_.clear();
      return State::kOpen;
    }
    const bool open =
        MayBecome(held, options_.key_opening) || MayBecome(held, options_.function_closing) ||
        MayBecome(held, options_.closing) || (keys_ > 0 && MayBecome(held, options_.value_closing));
    return open ? State::kOpen : State::kNone;
  }

  bool EndsFunction(std::string_view held) const {
    return held == options_.closing ||
           (!options_.function_closing.empty() && held == options_.function_closing);
  }

  State EndFunction(std::string_view tag, AnswerEvents& out) {
    out.Arguments(keys_ == 0 ? "{}" : "}");
    out.EndCall();
    ++calls_;
    const bool body_ends = tag == options_.closing;
    Go(At::kFunction);
    return body_ends ? State::kDone : State::kOpen;
  }

  State KeyByte() {
    if (held_.size() > kMaxNameBytes) return State::kNone;
    if (!held_.ends_with(options_.key_closing)) return State::kOpen;
    std::string_view key(held_);
    key.remove_suffix(options_.key_closing.size());
    is_string_ = true;
    if (options_.tag_has_type) {
      is_string_ = key.find("string=\"false") == std::string_view::npos;
      key = key.substr(0, key.find('"'));
    }
    key_ = Trim(key);
    if (key_.empty()) return State::kNone;
    Go(options_.value_opening.empty() ? At::kValue : At::kValueOpening);
    return State::kOpen;
  }

  State ValueOpeningByte() {
    const std::string_view held = Held();
    if (held == options_.value_opening) Go(At::kValue);
    return held.empty() || held_.empty() || MayBecome(held, options_.value_opening) ? State::kOpen
                                                                                    : State::kNone;
  }

  State ValueByte(AnswerEvents& out) {
    if (held_.ends_with(options_.value_closing)) {
      if (IsWithinString()) return State::kOpen;
      value_bytes_ = held_.size() - options_.value_closing.size();
      at_ = At::kBehindValue;
      return State::kOpen;
    }
    // The value's own closing tag is missing: the function's ends it where the body's follows.
    if (options_.closing.empty() || !held_.ends_with(options_.closing) || IsWithinString())
      return State::kOpen;
    std::string_view value(held_);
    value.remove_suffix(options_.closing.size());
    value = TrimRight(value);
    if (!options_.function_closing.empty()) {
      if (!value.ends_with(options_.function_closing)) return State::kOpen;
      value.remove_suffix(options_.function_closing.size());
    }
    PutValue(value, out);
    return EndFunction(options_.closing, out);
  }

  // Whether the value's end stands within a string of an object or array.
  bool IsWithinString() const {
    if (options_.tag_has_type ? is_string_ : schemas_.IsText(name_, key_)) return false;
    const std::string_view value = TrimLeft(held_);
    if (value.empty() || (value.front() != '{' && value.front() != '[')) return false;
    JsonScanner scanner;
    for (const char c : value) {
      if (scanner.Byte(c) != JsonScanner::State::kOpen) return false;
    }
    return scanner.in_string();
  }

  // Whether the closing tag is one is seen by what follows it.
  State ByteBehindValue(AnswerEvents& out) {
    const std::string all = held_;
    const size_t tail_begin = value_bytes_ + options_.value_closing.size();
    const std::string_view tail = TrimLeft(std::string_view(all).substr(tail_begin));
    if (tail.empty()) return State::kOpen;
    for (const std::string_view tag : {options_.key_opening, options_.function_closing,
                                       options_.closing, options_.value_closing}) {
      if (tag.empty() || tail != tag) continue;
      PutValue(std::string_view(all).substr(0, value_bytes_), out);
      Go(At::kParameter);
      held_ = tail;
      return ParameterByte(out);
    }
    for (const std::string_view tag : {options_.key_opening, options_.function_closing,
                                       options_.closing, options_.value_closing}) {
      if (MayBecome(tail, tag)) return State::kOpen;
    }
    // The tag is a part of the value; what follows it may be one that is not.
    at_ = At::kValue;
    held_ = all.substr(0, tail_begin);
    for (const char c : all.substr(tail_begin)) {
      const State state = Byte(c, out);
      if (state != State::kOpen) return state;
    }
    return State::kOpen;
  }

  void PutValue(std::string_view value, AnswerEvents& out) {
    if (options_.breaks_around_value) {
      if (value.starts_with('\n')) value.remove_prefix(1);
      if (value.ends_with('\n')) value.remove_suffix(1);
    }
    const std::string json = options_.tag_has_type ? (is_string_ ? JsonString(value) : Typed(value))
                                                   : schemas_.ToJson(name_, key_, value);
    out.Arguments(absl::StrCat(keys_ == 0 ? "{" : ", ", JsonString(key_), ": ", json));
    ++keys_;
  }

  static std::string Typed(std::string_view value) {
    const std::string_view trimmed = Trim(value);
    return IsJson(trimmed) ? std::string(trimmed) : JsonString(value);
  }

  const TaggedCallOptions options_;
  const ToolSchemas& schemas_;
  At at_;
  std::string held_;  // since the last tag
  std::string name_;
  std::string key_;
  bool is_string_ = true;
  size_t value_bytes_ = 0;  // of held_, behind a value's closing tag
  int keys_ = 0;
  int calls_ = 0;
};

}  // namespace

std::unique_ptr<CallBody> MakeTaggedCallBody(const TaggedCallOptions& options,
                                             const ToolSchemas& schemas) {
  return std::make_unique<TaggedCallBody>(options, schemas);
}

}  // namespace tessera::coordinator
