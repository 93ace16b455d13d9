#include "coordinator/api/messages_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"
#include "coordinator/api/chat_prompt.h"
#include "coordinator/api/chat_tools.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr std::string_view kBilling = "x-anthropic-billing-header";
constexpr char kContinues[] = "continue_final_message";

// The chat that a body is, as ReadChatCall takes it.
struct Chat {
  nlohmann::json body;
  Ordered conversation;
  std::vector<std::string> ignored_fields;
  std::vector<std::string> not_enforced;
};

absl::Status MessageError(size_t index, std::string_view what) {
  return FieldError("messages", absl::StrCat("messages[", index, "]: ", std::string(what)));
}

void AddParagraph(const std::string& paragraph, std::string& text) {
  if (!text.empty()) text += "\n";
  text += paragraph;
}

std::optional<std::string> BlocksText(const Ordered& blocks);

// What a block says, if it does so in text: text, documents of text, results of a search, the name
// of a tool that was found.
std::optional<std::string> BlockText(const Ordered& block) {
  const Ordered& type = Member(block, "type");
  const auto titled = [&block](std::string text) {
    for (const char* name : {"context", "source", "title"}) {
      const Ordered& line = Member(block, name);
      if (line.is_string()) text = absl::StrCat(line.get<std::string>(), "\n", text);
    }
    return text;
  };
  const Ordered* text = nullptr;
  if (type == "text") {
    text = &Member(block, "text");
  } else if (type == "tool_reference") {
    text = &Member(block, "tool_name");
  } else if (type == "search_result" || type == "document") {
    const Ordered& source = Member(block, "source");
    const bool in_blocks = type == "search_result" || Member(source, "type") == "content";
    std::optional<std::string> body;
    if (in_blocks) {
      body = BlocksText(Member(type == "document" ? source : block, "content"));
    } else if (Member(source, "type") == "text" && Member(source, "data").is_string()) {
      body = Member(source, "data").get<std::string>();
    }
    if (body.has_value()) return titled(*std::move(body));
  }
  if (text == nullptr || !text->is_string()) return std::nullopt;
  return text->get<std::string>();
}

// Text, or blocks of it, as one text.
std::optional<std::string> BlocksText(const Ordered& blocks) {
  if (blocks.is_null()) return "";
  if (blocks.is_string()) return blocks.get<std::string>();
  if (!blocks.is_array()) return std::nullopt;
  std::string text;
  for (const Ordered& block : blocks) {
    const std::optional<std::string> piece = BlockText(block);
    if (!piece.has_value()) return std::nullopt;
    if (!piece->starts_with(kBilling)) AddParagraph(*piece, text);
  }
  return text;
}

absl::StatusOr<std::string> TextOf(const Ordered& content, const std::string& where,
                                   std::string_view field) {
  std::optional<std::string> text = BlocksText(content);
  if (text.has_value()) return *std::move(text);
  return FieldError(field, absl::StrCat(where,
                                        ": a string or blocks of text are expected; other "
                                        "kinds are not supported yet"));
}

// What a server's tools did: the model's answer to it stands beside.
bool IsOfServer(const Ordered& type) {
  if (!type.is_string()) return false;
  const auto& name = type.get_ref<const std::string&>();
  return name == "server_tool_use" || name == "mcp_tool_use" ||
         (name.ends_with("_tool_result") && name != "tool_result");
}

// One message's blocks -> messages of a chat.
class BlockReader {
 public:
  BlockReader(size_t index, const std::string& role, Chat& chat)
      : index_(index),
        role_(role),
        messages_(chat.conversation["messages"]),
        ignored_fields_(chat.ignored_fields) {}

  absl::Status Run(const Ordered& blocks) {
    for (const Ordered& block : blocks) {
      if (absl::Status s = Read(block); !s.ok()) return s;
    }
    if (role_ == "assistant") {
      Ordered message = {{"role", role_}, {"content", text_}};
      if (!thinking_.empty()) message["reasoning_content"] = thinking_;
      if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
      messages_.push_back(std::move(message));
    } else if (has_text_ || (!has_results_ && role_ != "system")) {
      messages_.push_back({{"role", role_}, {"content", text_}});
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Read(const Ordered& block) {
    const Ordered& type = Member(block, "type");
    if (type == "text") return Add(block, "text", text_);
    if (type == "thinking") return Add(block, "thinking", thinking_);
    if (type == "redacted_thinking") return absl::OkStatus();
    if (type == "tool_use") return AddCall(block);
    if (type == "tool_result") return AddResult(block);
    if (IsOfServer(type)) {
      ignored_fields_.push_back(absl::StrCat("messages[", index_, "]:", type.get<std::string>()));
      return absl::OkStatus();
    }
    if (const std::optional<std::string> text = BlockText(block); text.has_value()) {
      AddParagraph(*text, text_);
      has_text_ = true;
      return absl::OkStatus();
    }
    return MessageError(index_,
                        absl::StrCat("blocks of the type ", type.dump(), " are not supported yet"));
  }

  absl::Status Add(const Ordered& block, const char* name, std::string& text) {
    const Ordered& piece = Member(block, name);
    if (!piece.is_string())
      return MessageError(index_, absl::StrCat(name, ": a string is expected"));
    AddParagraph(piece.get<std::string>(), text);
    has_text_ = true;
    return absl::OkStatus();
  }

  absl::Status AddCall(const Ordered& block) {
    if (!Member(block, "name").is_string() || !Member(block, "input").is_object())
      return MessageError(index_, "tool_use: a name and an object as input are expected");
    calls_.push_back({{"id", Member(block, "id")},
                      {"type", "function"},
                      {"function", {{"name", block["name"]}, {"arguments", block["input"]}}}});
    return absl::OkStatus();
  }

  absl::Status AddResult(const Ordered& block) {
    has_results_ = true;
    absl::StatusOr<std::string> text =
        TextOf(Member(block, "content"), absl::StrCat("messages[", index_, "].tool_result.content"),
               "messages");
    if (!text.ok()) return text.status();
    messages_.push_back({{"role", "tool"},
                         {"tool_call_id", Member(block, "tool_use_id")},
                         {"content", *std::move(text)}});
    return absl::OkStatus();
  }

  const size_t index_;
  const std::string role_;
  Ordered& messages_;
  std::vector<std::string>& ignored_fields_;
  std::string text_;
  std::string thinking_;
  Ordered calls_ = Ordered::array();
  bool has_text_ = false;
  bool has_results_ = false;
};

absl::Status AddMessages(const Ordered& messages, Chat& chat) {
  if (!messages.is_array() || messages.empty())
    return FieldError("messages", "messages: an array of at least one message is expected");
  for (size_t i = 0; i < messages.size(); ++i) {
    const Ordered& role = Member(messages[i], "role");
    if (role != "user" && role != "assistant" && role != "system")
      return MessageError(i, "role: \"user\", \"assistant\" or \"system\" is expected");
    const Ordered& content = Member(messages[i], "content");
    if (!content.is_string() && !content.is_array())
      return MessageError(i, "content: a string or an array of blocks is expected");
    if (content.is_string()) {
      chat.conversation["messages"].push_back({{"role", role}, {"content", content}});
      continue;
    }
    absl::Status read = BlockReader(i, role.get<std::string>(), chat).Run(content);
    if (!read.ok()) return read;
  }
  return absl::OkStatus();
}

// The beginning of an answer, which the model goes on with.
bool EndsInAnswer(const Ordered& messages) {
  if (messages.empty()) return false;
  const Ordered& last = messages.back();
  return Member(last, "role") == "assistant" && Member(last, "content") != "" &&
         !last.contains("tool_calls");
}

absl::Status AddTools(const Ordered& tools, Chat& chat) {
  if (tools.is_null()) return absl::OkStatus();
  if (!tools.is_array()) return FieldError("tools", "tools: an array is expected");
  Ordered functions = Ordered::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    const Ordered& type = Member(tools[i], "type");
    if (!type.is_null() && type != "custom") {
      chat.ignored_fields.push_back(
          absl::StrCat("tools[", i, "]:", type.is_string() ? type.get<std::string>() : "?"));
      continue;
    }
    Ordered function = {{"name", Member(tools[i], "name")}};
    if (const Ordered& text = Member(tools[i], "description"); !text.is_null())
      function["description"] = text;
    if (const Ordered& schema = Member(tools[i], "input_schema"); !schema.is_null())
      function["parameters"] = schema;
    if (Member(tools[i], "strict") == true) function["strict"] = true;
    functions.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  if (!functions.empty()) chat.conversation["tools"] = std::move(functions);
  return absl::OkStatus();
}

absl::Status AddToolChoice(const Ordered& choice, Chat& chat) {
  if (choice.is_null()) return absl::OkStatus();
  const Ordered& type = Member(choice, "type");
  Ordered& to = chat.conversation["tool_choice"];
  if (type == "auto" || type == "none") {
    to = type;
  } else if (type == "any") {
    to = "required";
  } else if (type == "tool") {
    to = {{"type", "function"}, {"function", {{"name", Member(choice, "name")}}}};
  } else {
    return FieldError("tool_choice",
                      "tool_choice: a type of \"auto\", \"any\", \"tool\" or \"none\" is expected");
  }
  if (Member(choice, "disable_parallel_tool_use") == true) chat.body["parallel_tool_calls"] = false;
  return absl::OkStatus();
}

absl::Status AddThinking(const nlohmann::json& thinking, const Ordered& effort,
                         const ServedModel& model, Chat& chat) {
  if (thinking.empty()) return absl::OkStatus();
  const nlohmann::json type = thinking.value("type", nlohmann::json());
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    return FieldError("thinking",
                      "thinking: a type of \"enabled\", \"disabled\" or \"adaptive\" is expected");
  }
  chat.body["enable_thinking"] = type != "disabled";
  if (type != "disabled" && effort.is_string()) {
    // Clients send an effort to every model.
    if (TakesReasoningEffort(model, effort.get<std::string>())) {
      chat.body["reasoning_effort"] = effort;
    } else {
      chat.not_enforced.emplace_back("output_config.effort");
    }
  }
  if (type != "enabled") return absl::OkStatus();
  const nlohmann::json budget = thinking.value("budget_tokens", nlohmann::json());
  if (budget.is_null()) return absl::OkStatus();
  // Clients send a budget to every model.
  GenerationRequest probe;
  if (!budget.is_number_integer() || budget.get<int64_t>() < 0) {
    return FieldError("thinking", "thinking: budget_tokens: an integer from 0 up is expected");
  }
  if (BoundThinking(model, PromptThinking::kNone, budget.get<int64_t>(), probe).ok()) {
    chat.body["thinking_token_budget"] = budget;
  } else {
    chat.not_enforced.emplace_back("thinking.budget_tokens");
  }
  return absl::OkStatus();
}

// Sampling and the rest that the prompt does not show.
void ReadSampling(BodyReader& reader, nlohmann::json& body) {
  for (const char* name : {"temperature", "top_p", "top_k", "stream"}) {
    if (const nlohmann::json* value = reader.Find(name)) body[name] = *value;
  }
  if (std::vector<std::string> stops = reader.Strings("stop_sequences"); !stops.empty())
    body["stop"] = std::move(stops);
}

// output_config.format, which was output_format before, is a chat's response_format.
absl::Status AddFormat(const Ordered& conversation, Chat& chat) {
  const Ordered& older_name = Member(conversation, "output_format");
  const Ordered& named = Member(Member(conversation, "output_config"), "format");
  const Ordered& format = named.is_null() ? older_name : named;
  if (format.is_null()) return absl::OkStatus();
  if (chat.body.contains(kContinues)) {
    return FieldError("output_config",
                      "output_config: format: not where the last message is the assistant's, which "
                      "the answer continues");
  }
  if (Member(format, "type") != "json_schema" || !Member(format, "schema").is_object()) {
    return FieldError("output_config",
                      "output_config: format: {\"type\": \"json_schema\", \"schema\": {...}} is "
                      "expected");
  }
  Ordered wrapped = {{"type", "json_schema"},
                     {"json_schema", {{"name", "output"}, {"schema", Member(format, "schema")}}}};
  chat.body["response_format"] = wrapped;
  chat.conversation["response_format"] = std::move(wrapped);
  return absl::OkStatus();
}

// An error of the chat, by the names that its fields have here.
absl::Status Renamed(const absl::Status& status) {
  const std::string why(status.message());
  const size_t end = why.find(": ");
  if (FieldOf(status) == kContinues) {
    return FieldError("messages",
                      absl::StrCat("messages: the last one is the assistant's, which the "
                                   "answer continues",
                                   end == std::string::npos ? "" : why.substr(end)));
  }
  if (FieldOf(status) != "response_format") return status;
  return FieldError("output_config",
                    absl::StrCat("output_config: format.schema",
                                 end == std::string::npos ? ": " + why : why.substr(end)));
}

absl::StatusOr<Chat> ReadChat(BodyReader& reader, const Ordered& conversation,
                              const ServedModel& model) {
  Chat chat;
  chat.ignored_fields = reader.Ignored();
  reader.CheckUnread();
  chat.body["model"] = reader.String("model").value_or("");
  const nlohmann::json thinking = reader.Object("thinking");
  reader.Object("tool_choice");
  reader.Object("output_config");
  if (!reader.status().ok()) return reader.status();
  chat.body["messages"] = nlohmann::json::array();  // those of the conversation
  Ordered& messages = chat.conversation["messages"] = Ordered::array();
  absl::StatusOr<std::string> system = TextOf(Member(conversation, "system"), "system", "system");
  if (!system.ok()) return system.status();
  if (!system->empty()) messages.push_back({{"role", "system"}, {"content", *system}});
  if (absl::Status s = AddMessages(Member(conversation, "messages"), chat); !s.ok()) return s;
  if (absl::Status s = AddTools(Member(conversation, "tools"), chat); !s.ok()) return s;
  const Ordered& tools = Member(conversation, "tools");
  const Ordered& chosen = Member(Member(conversation, "tool_choice"), "type");
  if ((tools.is_null() || tools.empty()) && (chosen == "any" || chosen == "tool"))
    return FieldError("tool_choice", "tool_choice: \"any\" and \"tool\" need tools");
  // A choice among tools that were all skipped says nothing.
  if (chat.conversation.contains("tools")) {
    absl::Status s = AddToolChoice(Member(conversation, "tool_choice"), chat);
    if (!s.ok()) return s;
  }
  if (EndsInAnswer(Member(chat.conversation, "messages"))) {
    const Ordered& choice = Member(chat.conversation, "tool_choice");
    if (choice == "required" || choice.is_object()) {
      return FieldError("tool_choice",
                        "tool_choice: \"any\" and \"tool\" are not possible where the last message "
                        "is the assistant's, which the answer continues");
    }
    chat.body[kContinues] = true;
  }
  const Ordered& effort = Member(Member(conversation, "output_config"), "effort");
  if (absl::Status s = AddThinking(thinking, effort, model, chat); !s.ok()) return s;
  return chat;
}

}  // namespace

absl::StatusOr<OpenAiCall> ReadMessagesCall(const nlohmann::json& body, const Ordered& conversation,
                                            const ServedModel& model, int64_t now_unix_seconds) {
  BodyReader reader(body, MessagesFields());
  const std::optional<int64_t> max_tokens = reader.Integer("max_tokens");
  if (!max_tokens.has_value()) reader.Fail("max_tokens", "missing");
  nlohmann::json sampling = nlohmann::json::object();
  ReadSampling(reader, sampling);
  reader.Object("output_format");
  absl::StatusOr<Chat> chat = ReadChat(reader, conversation, model);
  if (!chat.ok()) return chat.status();
  chat->body.update(sampling);
  if (absl::Status s = AddFormat(conversation, *chat); !s.ok()) return s;
  absl::StatusOr<OpenAiCall> call =
      ReadChatCall(chat->body, chat->conversation, model, now_unix_seconds);
  if (!call.ok()) return Renamed(call.status());
  call->form = AnswerForm::kMessages;
  call->ignored_fields = std::move(chat->ignored_fields);
  call->not_enforced.insert(call->not_enforced.end(), chat->not_enforced.begin(),
                            chat->not_enforced.end());
  int32_t& left = call->prompts[0].max_tokens;  // all that the context has
  call->fills_context = *max_tokens > left;
  left = static_cast<int32_t>(std::min<int64_t>(*max_tokens, left));
  return call;
}

absl::StatusOr<int64_t> CountMessagesTokens(const nlohmann::json& body, const Ordered& conversation,
                                            const ServedModel& model, int64_t now_unix_seconds) {
  BodyReader reader(body, CountTokensFields());
  if (absl::Status s = CheckModelName(model, reader.String("model").value_or("")); !s.ok())
    return s;
  absl::StatusOr<Chat> chat = ReadChat(reader, conversation, model);
  if (!chat.ok()) return chat.status();
  absl::StatusOr<ChatTools> tools = ReadChatTools(model, chat->conversation, std::nullopt);
  if (!tools.ok()) return tools.status();
  ChatPromptOptions options;
  options.show_tools = tools->offered;
  options.answer_start = tools->call_start;
  options.continue_final_message = chat->body.contains(kContinues);
  options.add_generation_prompt = !options.continue_final_message;
  if (chat->body.contains("enable_thinking"))
    options.enable_thinking = chat->body["enable_thinking"];
  if (chat->body.contains("reasoning_effort"))
    options.reasoning_effort = chat->body["reasoning_effort"];
  absl::StatusOr<ChatPrompt> prompt =
      EncodeChat(model, chat->conversation, options, now_unix_seconds);
  if (!prompt.ok()) return Renamed(prompt.status());
  return static_cast<int64_t>(prompt->token_ids.size());
}

}  // namespace tessera::coordinator
