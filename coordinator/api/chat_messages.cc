#include "coordinator/api/chat_messages.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"
#include "coordinator/api/chat_turns.h"
#include "coordinator/api/front_door.h"
#include "coordinator/tokenizer/text/split_json.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr char kContent[] = "content";
constexpr char kToolCalls[] = "tool_calls";
// Anthropic's name for what a call that was cut short has as arguments.
constexpr char kInvalidJson[] = "INVALID_JSON";
constexpr const char* kReasoningNames[] = {"reasoning_content", "reasoning", "thinking"};

absl::Status MessageError(std::string_view where, std::string_view what) {
  return FieldError("messages", absl::StrCat(std::string(where), ": ", std::string(what)));
}

// Reads the JSON strings of one conversation's tool calls. Together they hold no more values than a
// request's body may, so that text within text is no way around its limits.
class ArgumentsReader {
 public:
  explicit ArgumentsReader(ArgumentsForm form) : form_(form) {}

  absl::Status Change(std::string_view where, Ordered& arguments) {
    if (IsNone(arguments)) {
      arguments = form_ == ArgumentsForm::kText ? Ordered("{}") : Ordered::object();
    } else if (form_ == ArgumentsForm::kText) {
      if (!arguments.is_string()) arguments = arguments.dump();
    } else if (arguments.is_string()) {
      const std::string text = arguments.get<std::string>();
      absl::StatusOr<Ordered> read = Parse(text);
      if (read.ok()) {
        arguments = *std::move(read);
      } else if (absl::IsNotFound(read.status()) && form_ == ArgumentsForm::kObject) {
        arguments = Ordered{{kInvalidJson, text}};
      } else if (form_ == ArgumentsForm::kObject) {
        return MessageError(where, std::string(read.status().message()));
      }
    } else if (!arguments.is_object()) {
      return MessageError(where, "an object, or a string with an object in JSON, is expected");
    }
    return absl::OkStatus();
  }

 private:
  // What models and clients write for a call without arguments.
  static bool IsNone(const Ordered& arguments) {
    if (!arguments.is_string()) return arguments.is_null();
    const auto text = absl::StripAsciiWhitespace(arguments.get_ref<const std::string&>());
    return text.empty() || text == "null";
  }

  // NotFound: it is no object in JSON.
  absl::StatusOr<Ordered> Parse(const std::string& text) {
    if (absl::Status s = CheckJsonShape(text, "arguments", left_); !s.ok()) return s;
    const absl::StatusOr<nlohmann::json> checked = ParseJson(text, "arguments", left_);
    if (!checked.ok() || !checked->is_object())
      return absl::NotFoundError("the string holds no object");
    const auto count = [&text](char c) { return std::count(text.begin(), text.end(), c); };
    left_.containers -= count('{') + count('[');
    left_.strings -= count('"') / 2;
    left_.values -= count(',') + 1;
    absl::StatusOr<SplitJson> split = ParseSplit(absl::StrCat("{\"arguments\":", text, "}"),
                                                 "arguments", JsonLimits(), {"arguments"});
    if (!split.ok()) return split.status();
    return std::move(split->ordered["arguments"]);
  }

  ArgumentsForm form_;
  JsonLimits left_ = {.values = 4 << 20, .containers = 100'000, .strings = 500'000};
};

MessageKind KindOf(const Ordered& message) {
  const std::string& role = message["role"].get_ref<const std::string&>();
  if (role == "system" || role == "developer") return MessageKind::kSystem;
  if (role == "tool") return MessageKind::kTool;
  if (role != "assistant") return MessageKind::kUser;
  const auto calls = message.find(kToolCalls);
  const bool has_calls = calls != message.end() && calls->is_array() && !calls->empty();
  return has_calls ? MessageKind::kToolCalls : MessageKind::kAssistant;
}

// Parts of text under the names that Responses have for them become a chat's.
absl::Status ReadParts(std::string_view where, Ordered& parts) {
  for (Ordered& part : parts) {
    const Ordered& type = Member(part, "type");
    const bool is_refusal = type == "refusal";
    const bool is_text = type == "text" || type == "input_text" || type == "output_text";
    const Ordered& text = Member(part, is_refusal ? "refusal" : "text");
    if ((!is_text && !is_refusal) || !text.is_string()) {
      return MessageError(where, absl::StrCat("parts other than text are not supported yet, as of "
                                              "the type ",
                                              type.dump()));
    }
    if (type != "text") part = Ordered{{"type", "text"}, {"text", text}};
  }
  return absl::OkStatus();
}

std::string JoinParts(const Ordered& parts) {
  std::string text;
  for (const Ordered& part : parts) text += part["text"].get_ref<const std::string&>();
  return text;
}

// Whether such a message says nothing without content, so that it has another name for it.
bool NeedsContent(const Ordered& message, MessageKind kind) {
  return kind == MessageKind::kSystem || message["role"] == "user";
}

// Content that is absent counts as null elsewhere.
absl::Status ChangeContent(std::string_view where, const MessageForms& forms, MessageKind kind,
                           Ordered& message) {
  if (!message.contains(kContent) && NeedsContent(message, kind))
    return MessageError(where, "missing");
  Ordered& content = message[kContent];
  const MessageForms::Content& taken = forms.Of(kind);
  if (content.is_array()) {
    if (absl::Status s = ReadParts(where, content); !s.ok()) return s;
    if (taken.form == ContentForm::kText) content = JoinParts(content);
  } else if (!content.is_null() && !content.is_string()) {
    return MessageError(where, "a string or an array of parts is expected");
  }
  if (kind == MessageKind::kToolCalls && forms.calls_need_null && content == "") content = nullptr;
  if (content.is_null()) {
    if (taken.takes_null) return absl::OkStatus();
    content = "";
  }
  if (taken.form == ContentForm::kParts && content.is_string()) {
    Ordered part = {{"type", "text"}, {"text", std::move(content)}};
    content = Ordered::array();
    content.push_back(std::move(part));
  }
  return absl::OkStatus();
}

// Mistral's templates demand 9 letters and digits.
void ChangeId(const char* name, Ordered& holder) {
  constexpr size_t kBytes = 9;
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  const auto found = holder.find(name);
  if (found == holder.end() || !found->is_string()) return;
  auto& id = found->get_ref<std::string&>();
  const bool fits = id.size() == kBytes && std::all_of(id.begin(), id.end(), absl::ascii_isalnum);
  if (fits) return;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, 64 bits
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  id.clear();
  for (size_t i = 0; i < kBytes; ++i, hash /= kDigits.size())
    id.push_back(kDigits[hash % kDigits.size()]);
}

void ChangeIds(Ordered& message) {
  ChangeId("tool_call_id", message);
  const auto calls = message.find(kToolCalls);
  if (calls == message.end() || !calls->is_array()) return;
  for (Ordered& call : *calls) ChangeId("id", call);
}

absl::Status ChangeToolCalls(std::string_view where, ArgumentsReader& reader, Ordered& message) {
  Ordered& calls = message[kToolCalls];
  for (size_t i = 0; i < calls.size(); ++i) {
    Ordered& call = calls[i];
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    const std::string place =
        absl::StrCat(std::string(where), ".", kToolCalls, "[", i, "].function.arguments");
    if (absl::Status s = reader.Change(place, call["function"]["arguments"]); !s.ok()) return s;
  }
  return absl::OkStatus();
}

void ShareReasoning(Ordered& message) {
  // A client may send one name empty beside another that holds the text.
  const auto says_nothing = [](const Ordered& field) {
    return field.is_null() || (field.is_string() && field.get_ref<const std::string&>().empty());
  };
  Ordered reasoning;
  for (const char* name : kReasoningNames) {
    const auto found = message.find(name);
    if (says_nothing(reasoning) && found != message.end()) reasoning = *found;
  }
  if (reasoning.is_null()) return;
  for (const char* name : kReasoningNames) {
    Ordered& field = message[name];
    if (says_nothing(field)) field = reasoning;
  }
}

}  // namespace

absl::StatusOr<Ordered> ToTemplateMessages(const Ordered& messages, const ProbedTemplate& probed,
                                           CallIds ids) {
  if (probed.forms.Of(MessageKind::kUser).form == ContentForm::kNeither) {
    return FieldError("messages",
                      "the model's chat template writes a message's content neither as text nor as "
                      "a list of parts: give another with --chat-template, or use /v1/completions");
  }
  const bool names_developer = probed.chat_template.Names("developer");
  ArgumentsReader reader(probed.forms.arguments);
  Ordered changed = Ordered::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string where = absl::StrCat("messages[", i, "]");
    if (!messages[i].is_object() || !messages[i].contains("role") ||
        !messages[i]["role"].is_string()) {
      return MessageError(where, "an object with a string role is expected");
    }
    Ordered message = messages[i];
    const MessageKind kind = KindOf(message);
    absl::Status status =
        ChangeContent(absl::StrCat(where, ".content"), probed.forms, kind, message);
    if (status.ok() && kind == MessageKind::kToolCalls)
      status = ChangeToolCalls(where, reader, message);
    if (!status.ok()) return status;
    if (ids == CallIds::kNineCharacters) ChangeIds(message);
    if (message["role"] == "assistant") ShareReasoning(message);
    if (message["role"] == "developer" && !names_developer) message["role"] = "system";
    // Templates that only look whether there are any would find some.
    const Ordered& calls = Member(message, kToolCalls);
    if (calls.is_null() || calls == Ordered::array()) message.erase(kToolCalls);
    changed.push_back(std::move(message));
  }
  return ToTemplateTurns(probed.forms, std::move(changed));
}

}  // namespace tessera::coordinator
