#include "coordinator/api/responses_input.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"
#include "coordinator/api/front_door.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr char kContent[] = "content";
constexpr char kReasoning[] = "reasoning_content";
constexpr char kToolCalls[] = "tool_calls";

// Calls of tools that clients run, besides those of functions: their arguments are an object.
struct ClientTool {
  std::string_view call, output;  // types of items
  const char* name;               // of the function that the model sees
  const char* arguments;          // the call's member
};
constexpr ClientTool kClientTools[] = {
    {"local_shell_call", "local_shell_call_output", "local_shell", "action"},
    {"shell_call", "shell_call_output", "shell", "action"},
    {"apply_patch_call", "apply_patch_call_output", "apply_patch", "operation"},
    {"tool_search_call", "tool_search_output", "tool_search", "arguments"},
};

// What a server did: the model's answer to it stands in messages.
constexpr std::string_view kOfServers[] = {
    "web_search_call", "file_search_call",     "code_interpreter_call", "image_generation_call",
    "mcp_list_tools",  "mcp_approval_request", "mcp_approval_response"};

// These hold what was said before, and cannot be read here.
constexpr std::string_view kCompacted[] = {"compaction", "compaction_trigger", "context_compaction",
                                           "compaction_summary"};

bool IsAmong(std::span<const std::string_view> names, const Ordered& type) {
  return std::any_of(names.begin(), names.end(),
                     [&type](std::string_view name) { return type == name; });
}

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
    if (type == "mcp_call") return AddServersCall(item);
    if (type == "function_call_output" || type == "custom_tool_call_output") return AddOutput(item);
    if (type == "additional_tools") return AddTools(item);
    if (type == "agent_message") return AddAgentMessage(item);
    for (const ClientTool& tool : kClientTools) {
      if (type == tool.call) return AddClientCall(tool, item);
      if (type == tool.output) return AddClientOutput(item);
    }
    if (IsAmong(kOfServers, type)) return Skip(item);
    if (type == "item_reference")
      return Error("item_reference: items are not stored here: send the item itself");
    if (IsAmong(kCompacted, type)) {
      return Error(absl::StrCat("items of the type ", type.dump(),
                                " cannot be read here: send the conversation itself, or a summary "
                                "of it as a message"));
    }
    return Error(absl::StrCat("items of the type ", type.dump(), " are not supported yet"));
  }

  void AddSystem(const std::string& text) {
    chat_.push_back({{"role", "system"}, {kContent, text}});
  }
  void AddUser(const std::string& text) { chat_.push_back({{"role", "user"}, {kContent, text}}); }

  ResponsesInput Take() { return {TakeMessages(), std::move(tools_), std::move(skipped_)}; }

 private:
  Ordered TakeMessages() {
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

  absl::Status Skip(const Ordered& item) {
    skipped_.push_back(absl::StrCat("input[", index_, "]:", item["type"].get<std::string>()));
    return absl::OkStatus();
  }

  absl::Status AddTools(const Ordered& item) {
    tools_.emplace_back(absl::StrCat("input[", index_, "].tools"), Member(item, "tools"));
    return absl::OkStatus();
  }

  // What another agent says to this one.
  absl::Status AddAgentMessage(const Ordered& item) {
    std::string text;
    for (const Ordered& part : Member(item, kContent)) {
      if (const Ordered& piece = Member(part, "text"); piece.is_string())
        text += piece.get<std::string>();
    }
    if (text.empty()) return Skip(item);
    const Ordered& author = Member(item, "author");
    in_turn_ = false;
    AddUser(absl::StrCat("Message from ",
                         author.is_string() ? author.get<std::string>() : "another agent", ":\n",
                         text));
    return absl::OkStatus();
  }

  void PushCall(const Ordered& id, const std::string& name, Ordered arguments) {
    Turn(false)[kToolCalls].push_back(
        {{"id", id},
         {"type", "function"},
         {"function", {{"name", name}, {"arguments", std::move(arguments)}}}});
  }

  void PushOutput(const Ordered& id, std::string text) {
    in_turn_ = false;
    chat_.push_back({{"role", "tool"}, {"tool_call_id", id}, {kContent, std::move(text)}});
  }

  // One that a server made, with what it got.
  absl::Status AddServersCall(const Ordered& item) {
    for (const char* name : {"id", "name", "arguments", "server_label"}) {
      if (!Member(item, name).is_string())
        return Error(absl::StrCat(name, ": a string is expected"));
    }
    PushCall(item["id"],
             FlatToolName(item["server_label"].get<std::string>(), item["name"].get<std::string>()),
             item["arguments"]);
    const Ordered& output = Member(item, Member(item, "output").is_null() ? "error" : "output");
    PushOutput(item["id"], output.is_string() ? output.get<std::string>() : output.dump());
    return absl::OkStatus();
  }

  // Some have no call_id, or another name for it.
  static const Ordered& CallIdOf(const Ordered& item) {
    return Member(item, Member(item, "call_id").is_string() ? "call_id" : "id");
  }

  absl::Status AddClientCall(const ClientTool& tool, const Ordered& item) {
    // Without an id of a call a server ran it.
    if (tool.name == std::string_view("tool_search") && !Member(item, "call_id").is_string())
      return Skip(item);
    if (!CallIdOf(item).is_string()) return Error("call_id: a string is expected");
    if (!Member(item, tool.arguments).is_object())
      return Error(absl::StrCat(tool.arguments, ": an object is expected"));
    PushCall(CallIdOf(item), tool.name, item[tool.arguments]);
    return absl::OkStatus();
  }

  absl::Status AddClientOutput(const Ordered& item) {
    const Ordered& found = Member(item, "tools");  // by a search
    if (!found.is_null()) {
      if (absl::Status s = AddTools(item); !s.ok()) return s;
      if (!Member(item, "call_id").is_string()) return absl::OkStatus();
    }
    if (!CallIdOf(item).is_string()) return Error("call_id: a string is expected");
    std::string names;
    for (const Ordered& tool : found) {
      const Ordered& name = Member(tool, "name");
      if (name.is_string())
        absl::StrAppend(&names, names.empty() ? "" : ", ", name.get<std::string>());
    }
    Ordered output = Member(item, Member(item, "output").is_null() ? "status" : "output");
    if (!found.is_null()) output = absl::StrCat("found: ", names);
    PushOutput(CallIdOf(item), output.is_string() ? output.get<std::string>() : output.dump());
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
    PushCall(item["call_id"],
             FlatToolName(space.is_string() ? space.get<std::string>() : "",
                          item["name"].get<std::string>()),
             std::move(arguments));
    return absl::OkStatus();
  }

  absl::Status AddOutput(const Ordered& item) {
    if (!Member(item, "call_id").is_string()) return Error("call_id: a string is expected");
    absl::StatusOr<Ordered> output = Content(Member(item, "output"), "output");
    if (!output.ok()) return output.status();
    PushOutput(item["call_id"], TextOf(*output));
    return absl::OkStatus();
  }

  Ordered chat_ = Ordered::array();
  std::vector<std::pair<std::string, Ordered>> tools_;
  std::vector<std::string> skipped_;
  size_t index_ = 0;
  bool in_turn_ = false;  // the chat's last message is the assistant's, and may grow
};

}  // namespace

std::string FlatToolName(std::string_view tool_namespace, std::string_view name) {
  const bool joined = tool_namespace.empty() || tool_namespace.ends_with("__");
  return absl::StrCat(std::string(tool_namespace), joined ? "" : "__", std::string(name));
}

absl::StatusOr<ResponsesInput> ReadResponsesInput(const std::string& instructions,
                                                  const Ordered& input) {
  InputReader reader;
  if (!instructions.empty()) reader.AddSystem(instructions);
  if (input.is_string()) {
    reader.AddUser(input.get<std::string>());
    return reader.Take();
  }
  if (input.is_null()) return FieldError("input", "input: missing");
  if (!input.is_array() || (input.empty() && instructions.empty()))
    return FieldError("input", "input: a string or an array of at least one item is expected");
  for (size_t i = 0; i < input.size(); ++i) {
    if (absl::Status s = reader.Add(i, input[i]); !s.ok()) return s;
  }
  return reader.Take();
}

}  // namespace tessera::coordinator
