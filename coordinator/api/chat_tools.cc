#include "coordinator/api/chat_tools.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr char kTools[] = "tools";
constexpr char kToolChoice[] = "tool_choice";
constexpr char kAllowedTools[] = "allowed_tools";
constexpr size_t kMaxTools = 1024;
// Where gpt-oss's thinking ends, for stop strings: its answer is a channel of its own.
constexpr char kHarmonyFinal[] = "<|channel|>final<|message|>";

// An answer ends where its first call does.
class FirstCallEnd final : public TextEnd {
 public:
  explicit FirstCallEnd(std::shared_ptr<const AnswerFormat> format)
      : format_(std::move(format)), parser_(*format_) {}

  bool Append(std::string_view text) override {
    const std::vector<AnswerEvent> events = parser_.Append(text);
    return std::any_of(events.begin(), events.end(), [](const AnswerEvent& event) {
      return event.kind == AnswerEvent::Kind::kCallEnd;
    });
  }

 private:
  const std::shared_ptr<const AnswerFormat> format_;
  AnswerParser parser_;
};

absl::Status CheckTool(const Ordered& tool, size_t index, ChatTools& read) {
  const std::string where = absl::StrCat(kTools, "[", index, "]");
  const auto error = [&](std::string_view what) {
    return FieldError(kTools, absl::StrCat(where, ": ", std::string(what)));
  };
  if (!tool.is_object()) return error("an object is expected");
  if (Member(tool, "type") != "function")
    return error(R"(only {"type": "function"} is supported yet)");
  const Ordered& function = Member(tool, "function");
  if (!function.is_object()) return error("function: an object is expected");
  const Ordered& name = Member(function, "name");
  if (!name.is_string() || name.get_ref<const std::string&>().empty())
    return error("function.name: a string is expected");
  const Ordered& parameters = Member(function, "parameters");
  if (!parameters.is_null() && !parameters.is_object())
    return error("function.parameters: an object is expected");
  const Ordered& description = Member(function, "description");
  if (!description.is_null() && !description.is_string())
    return error("function.description: a string is expected");
  const Ordered& strict = Member(function, "strict");
  if (!strict.is_null() && !strict.is_boolean())
    return error("function.strict: true or false is expected");
  if (strict == true) read.not_enforced.push_back(absl::StrCat(where, ".function.strict"));
  return absl::OkStatus();
}

// "": of any function.
absl::StatusOr<std::string> ChosenFunction(const Ordered& choice, const Ordered& tools) {
  if (choice == "required") return std::string();
  const Ordered& function = Member(choice, "function");
  const Ordered& name = Member(function.is_object() ? function : choice, "name");
  if (Member(choice, "type") != "function" || !name.is_string()) {
    return FieldError(kToolChoice,
                      "tool_choice: \"none\", \"auto\", \"required\" or {\"type\": \"function\", "
                      "\"function\": {\"name\": ...}} is expected");
  }
  if (!ToolSchemas(tools).Has(name.get<std::string>())) {
    return FieldError(kToolChoice, absl::StrCat("tool_choice: there is no function ", name.dump(),
                                                " among the tools"));
  }
  return name.get<std::string>();
}

absl::Status CheckModelHasTools(const ServedModel& model) {
  if (!model.chat_template.has_value()) return absl::OkStatus();  // which is refused in its turn
  const ChatTemplate& chat_template = model.chat_template->chat_template;
  if (!chat_template.NamesForTools(kTools)) {
    return FieldError(kTools, absl::StrCat("tools: the chat template of the model '", model.name,
                                           "' does not show tools to the model"));
  }
  if (model.call_format != nullptr) return absl::OkStatus();
  return FieldError(kTools, absl::StrCat("tools: the chat template of the model '", model.name,
                                         "' writes calls in a format that is not known; start the "
                                         "server with --tool-call-parser NAME"));
}

}  // namespace

bool HasAllowedTools(const Ordered& conversation) {
  return Member(Member(conversation, kToolChoice), "type") == kAllowedTools;
}

absl::Status KeepAllowedTools(Ordered& conversation) {
  const Ordered choice = Member(conversation, kToolChoice);
  // Chats wrap it, Responses do not.
  const Ordered& wrapped = Member(choice, kAllowedTools);
  const Ordered& allowed = wrapped.is_object() ? wrapped : choice;
  const Ordered& mode = Member(allowed, "mode");
  const Ordered& names = Member(allowed, kTools);
  if ((mode != "auto" && mode != "required") || !names.is_array() || names.empty()) {
    return FieldError(
        kToolChoice,
        "tool_choice: allowed_tools has a mode, \"auto\" or \"required\", and tools, an "
        "array of {\"type\": \"function\", \"function\": {\"name\": ...}}");
  }
  const Ordered& tools = Member(conversation, kTools);
  Ordered kept = Ordered::array();
  for (const Ordered& one : names) {
    const Ordered& function = Member(one, "function");
    const Ordered& name = Member(function.is_object() ? function : one, "name");
    const auto found = std::find_if(tools.begin(), tools.end(), [&](const Ordered& tool) {
      return name.is_string() && Member(Member(tool, "function"), "name") == name;
    });
    if (found == tools.end()) {
      return FieldError(kToolChoice, absl::StrCat("tool_choice: there is no function ", name.dump(),
                                                  " among the tools"));
    }
    kept.push_back(*found);
  }
  conversation[kTools] = std::move(kept);
  conversation[kToolChoice] = mode;
  return absl::OkStatus();
}

absl::StatusOr<ChatTools> ReadChatTools(const ServedModel& model, const Ordered& conversation,
                                        std::optional<bool> parallel_tool_calls) {
  ChatTools read;
  const Ordered& tools = Member(conversation, kTools);
  const Ordered& choice = Member(conversation, kToolChoice);
  if (!tools.is_null() && !tools.is_array())
    return FieldError(kTools, "tools: an array of functions is expected");
  if (tools.size() > kMaxTools)
    return FieldError(kTools, absl::StrCat("tools: at most ", kMaxTools, " are read"));
  for (size_t i = 0; i < tools.size(); ++i) {
    if (absl::Status s = CheckTool(tools[i], i, read); !s.ok()) return s;
  }
  read.one_call = !parallel_tool_calls.value_or(true);
  if (choice == "none") return ChatTools{};
  const bool automatic = choice.is_null() || choice == "auto";
  if (tools.empty()) {
    if (automatic) return read;
    return FieldError(kToolChoice, "tool_choice: only with tools");
  }
  if (absl::Status s = CheckModelHasTools(model); !s.ok()) return s;
  read.offered = true;
  if (automatic || model.call_format == nullptr) return read;
  absl::StatusOr<std::string> function = ChosenFunction(choice, tools);
  if (!function.ok()) return function.status();
  read.call_start = model.call_format->call_start(*function);
  read.one_call = read.one_call || !function->empty();
  return read;
}

std::shared_ptr<const AnswerFormat> AnswerFormatOf(const ServedModel& model,
                                                   const Ordered& conversation,
                                                   const ChatTools& tools,
                                                   PromptThinking thinking) {
  const bool has_channels = model.call_format != nullptr && model.call_format->has_thinking;
  const bool has_thinking = !model.thinking.opening.empty() && thinking != PromptThinking::kClosed;
  if (!tools.offered && !has_channels && !has_thinking) return nullptr;
  auto format = std::make_shared<AnswerFormat>();
  if (tools.offered || has_channels) format->calls = model.call_format;
  format->schemas = ToolSchemas(Member(conversation, kTools));
  if (!has_channels) format->thinking = model.thinking;
  format->at_start = thinking;
  format->prefix = tools.call_start;
  format->one_call = tools.one_call;
  for (const Ordered& message : Member(conversation, "messages")) {
    const Ordered& calls = Member(message, "tool_calls");
    if (calls.is_array()) format->earlier_calls += static_cast<int64_t>(calls.size());
  }
  format->draw_id = DrawId;
  return format;
}

void PrepareForReading(const ServedModel& model, std::shared_ptr<const AnswerFormat> shared_format,
                       GenerationRequest& request) {
  const AnswerFormat& format = *shared_format;
  const auto show = [&](const std::string& marker) {
    const std::optional<int32_t> id = model.tokenizer->TokenId(marker);
    if (id.has_value() && model.tokenizer->IsSpecial(*id)) request.shown_special_ids.push_back(*id);
  };
  if (format.one_call && format.calls != nullptr) {
    request.make_text_end = [shared_format] {
      return std::make_unique<FirstCallEnd>(shared_format);
    };
  }
  if (format.calls != nullptr) {
    for (const std::string& marker : format.calls->markers) show(marker);
    if (format.calls->has_thinking && format.prefix.empty()) {
      request.thinking = {kHarmonyFinal, kHarmonyFinal, /*is_open=*/true};
    }
  }
  if (format.thinking.opening.empty() || format.at_start == PromptThinking::kClosed) return;
  show(format.thinking.opening);
  show(format.thinking.closing);
  request.thinking = {format.thinking.opening, format.thinking.closing,
                      format.at_start == PromptThinking::kOpen};
}

absl::Status BoundThinking(const ServedModel& model, PromptThinking thinking, int64_t tokens,
                           GenerationRequest& request) {
  constexpr char kField[] = "thinking_token_budget";
  if (model.call_format != nullptr && model.call_format->has_thinking) {
    return FieldError(kField, absl::StrCat(kField, ": the model '", model.name,
                                           "' thinks in a channel, which is not supported yet"));
  }
  if (model.thinking.opening.empty() || thinking == PromptThinking::kClosed)
    return absl::OkStatus();
  const std::optional<int32_t> closing = model.tokenizer->TokenId(model.thinking.closing);
  const auto encoded = [&](const std::string& text) {
    return model.tokenizer
        ->Encode(text, {.add_special_tokens = false, .parse_special_tokens = true})
        .value_or(std::vector<int32_t>());
  };
  ThinkingBudget budget;
  budget.tokens = static_cast<int32_t>(tokens);
  if (thinking == PromptThinking::kNone) budget.opening_ids = encoded(model.thinking.opening);
  budget.end_ids = encoded(absl::StrCat("\n", model.thinking.closing));
  if (!closing.has_value() || budget.end_ids.empty() || budget.end_ids.back() != *closing) {
    return FieldError(kField,
                      absl::StrCat(kField, ": the tokenizer of the model '", model.name,
                                   "' has no token of its own for ", model.thinking.closing));
  }
  budget.closing_id = *closing;
  request.thinking_budget = std::move(budget);
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
