#include "coordinator/api/responses_input.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"
#include "coordinator/api/front_door.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr char kContent[] = "content";
constexpr char kReasoning[] = "reasoning_content";
constexpr char kToolCalls[] = "tool_calls";

bool IsSystem(const Ordered& message) {
  return message["role"] == "system" || message["role"] == "developer";
}

// A message's content as one text.
std::string TextOf(const Ordered& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  for (const Ordered& part : content) text += part["text"].get_ref<const std::string&>();
  return text;
}

class InputReader {
 public:
  absl::Status Add(size_t index, const Ordered& item) {
    index_ = index;
    if (!item.is_object()) return Error("an object is expected");
    const Ordered& type = Member(item, "type");
    if (type.is_null() || type == "message") return AddMessage(item);
    if (type == "reasoning") return AddReasoning(item);
    if (type == "function_call") return AddCall(item, "arguments");
    if (type == "custom_tool_call") return AddCall(item, "input");
    if (type == "function_call_output" || type == "custom_tool_call_output") return AddOutput(item);
    if (type == "item_reference")
      return Error("item_reference: items are not stored here: send the item itself");
    return Error(absl::StrCat("items of the type ", type.dump(), " are not supported yet"));
  }

  void AddSystem(const std::string& text) {
    chat_.push_back({{"role", "system"}, {kContent, text}});
  }
  void AddUser(const std::string& text) { chat_.push_back({{"role", "user"}, {kContent, text}}); }

  Ordered Take() {
    size_t leading = 0;
    while (leading < chat_.size() && IsSystem(chat_[leading])) ++leading;
    if (leading < 2) return std::move(chat_);
    std::string system;
    for (size_t i = 0; i < leading; ++i)
      absl::StrAppend(&system, i == 0 ? "" : "\n\n", TextOf(chat_[i][kContent]));
    Ordered merged = Ordered::array({{{"role", "system"}, {kContent, std::move(system)}}});
    for (size_t i = leading; i < chat_.size(); ++i) merged.push_back(std::move(chat_[i]));
    return merged;
  }

 private:
  absl::Status Error(std::string_view what) const {
    return FieldError("input", absl::StrCat("input[", index_, "]: ", std::string(what)));
  }

  // A string, or parts -> a string, or parts as those of a chat.
  absl::StatusOr<Ordered> Content(const Ordered& content, const char* name) const {
    if (content.is_string()) return content;
    if (!content.is_array())
      return Error(absl::StrCat(name, ": a string or an array of parts is expected"));
    Ordered parts = Ordered::array();
    for (const Ordered& part : content) {
      const Ordered& type = Member(part, "type");
      const bool is_text = type == "input_text" || type == "output_text" || type == "text";
      if (!is_text && type != "refusal") {
        return Error(
            absl::StrCat(name, ": parts of the type ", type.dump(), " are not supported yet"));
      }
      const Ordered& text = Member(part, is_text ? "text" : "refusal");
      if (!text.is_string()) return Error(absl::StrCat(name, ": a part has no text"));
      parts.push_back({{"type", "text"}, {"text", text}});
    }
    return parts;
  }

  // The assistant's message that the item belongs to.
  Ordered& Turn(bool begins) {
    if (begins || !in_turn_) chat_.push_back({{"role", "assistant"}, {kContent, nullptr}});
    in_turn_ = true;
    return chat_.back();
  }
  bool TurnHas(const char* name) const { return in_turn_ && !Member(chat_.back(), name).is_null(); }

  absl::Status AddMessage(const Ordered& item) {
    const Ordered& role = Member(item, "role");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      return Error("role: \"user\", \"assistant\", \"system\" or \"developer\" is expected");
    absl::StatusOr<Ordered> content = Content(Member(item, kContent), kContent);
    if (!content.ok()) return content.status();
    if (role != "assistant") {
      in_turn_ = false;
      chat_.push_back({{"role", role}, {kContent, *std::move(content)}});
      return absl::OkStatus();
    }
    // Text behind calls belongs to their message; two messages stay two.
    Ordered& said = Turn(TurnHas(kContent) && !TurnHas(kToolCalls))[kContent];
    said = absl::StrCat(said.is_null() ? "" : said.get<std::string>(), TextOf(*content));
    return absl::OkStatus();
  }

  absl::Status AddReasoning(const Ordered& item) {
    const auto join = [&](const char* name) {
      std::string text;
      for (const Ordered& part : Member(item, name)) {
        const Ordered& piece = Member(part, "text");
        if (!piece.is_string()) continue;
        absl::StrAppend(&text, text.empty() ? "" : "\n", piece.get<std::string>());
      }
      return text;
    };
    std::string text = join(kContent);
    if (text.empty()) text = join("summary");
    if (text.empty()) return absl::OkStatus();
    Ordered& turn = Turn(TurnHas(kContent) || TurnHas(kToolCalls));
    if (TurnHas(kReasoning)) text = absl::StrCat(turn[kReasoning].get<std::string>(), "\n", text);
    turn[kReasoning] = std::move(text);
    return absl::OkStatus();
  }

  // `payload`: arguments, or the input of a custom tool.
  absl::Status AddCall(const Ordered& item, const char* payload) {
    for (const char* name : {"call_id", "name", payload}) {
      if (!Member(item, name).is_string())
        return Error(absl::StrCat(name, ": a string is expected"));
    }
    const Ordered& space = Member(item, "namespace");
    if (!space.is_null() && !space.is_string()) return Error("namespace: a string is expected");
    Ordered arguments = item[payload];
    if (payload == std::string_view("input")) arguments = {{"input", item[payload]}};
    Turn(false)[kToolCalls].push_back(
        {{"id", item["call_id"]},
         {"type", "function"},
         {"function",
          {{"name", FlatToolName(space.is_string() ? space.get<std::string>() : "",
                                 item["name"].get<std::string>())},
           {"arguments", std::move(arguments)}}}});
    return absl::OkStatus();
  }

  absl::Status AddOutput(const Ordered& item) {
    if (!Member(item, "call_id").is_string()) return Error("call_id: a string is expected");
    absl::StatusOr<Ordered> output = Content(Member(item, "output"), "output");
    if (!output.ok()) return output.status();
    in_turn_ = false;
    chat_.push_back(
        {{"role", "tool"}, {"tool_call_id", item["call_id"]}, {kContent, TextOf(*output)}});
    return absl::OkStatus();
  }

  Ordered chat_ = Ordered::array();
  size_t index_ = 0;
  bool in_turn_ = false;  // the chat's last message is the assistant's, and may grow
};

}  // namespace

std::string FlatToolName(std::string_view tool_namespace, std::string_view name) {
  const bool joined = tool_namespace.empty() || tool_namespace.ends_with("__");
  return absl::StrCat(std::string(tool_namespace), joined ? "" : "__", std::string(name));
}

absl::StatusOr<Ordered> ReadResponsesInput(const std::string& instructions, const Ordered& input) {
  InputReader reader;
  if (!instructions.empty()) reader.AddSystem(instructions);
  if (input.is_string()) {
    reader.AddUser(input.get<std::string>());
    return reader.Take();
  }
  if (input.is_null()) return FieldError("input", "input: missing");
  if (!input.is_array() || input.empty())
    return FieldError("input", "input: a string or an array of at least one item is expected");
  for (size_t i = 0; i < input.size(); ++i) {
    if (absl::Status s = reader.Add(i, input[i]); !s.ok()) return s;
  }
  return reader.Take();
}

}  // namespace tessera::coordinator
