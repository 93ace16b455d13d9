#include "coordinator/api/chat_request.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "coordinator/api/call_grammar.h"
#include "coordinator/api/chat_tools.h"

namespace tessera::coordinator {

absl::StatusOr<PreparedChat> PrepareChat(const ServedModel& model,
                                         const nlohmann::ordered_json& conversation,
                                         ChatRequest chat, int64_t now_unix_seconds,
                                         GenerationRequest& request) {
  if (HasAllowedTools(conversation)) {
    nlohmann::ordered_json kept = conversation;
    if (absl::Status s = KeepAllowedTools(kept); !s.ok()) return s;
    return PrepareChat(model, kept, std::move(chat), now_unix_seconds, request);
  }
  absl::StatusOr<ChatTools> tools = ReadChatTools(model, conversation, chat.parallel_tool_calls);
  if (!tools.ok()) return tools.status();
  ChatPromptOptions& prompt = chat.prompt;
  if (!tools->call_start.empty() && prompt.continue_final_message)
    return FieldError("tool_choice", "tool_choice: not with continue_final_message: true");
  prompt.show_tools = tools->offered;
  prompt.answer_start = tools->call_start;
  const std::optional<int64_t> budget = chat.thinking_token_budget;
  if (budget == 0 && !prompt.enable_thinking.has_value()) prompt.enable_thinking = false;
  absl::StatusOr<ChatPrompt> encoded = EncodeChat(model, conversation, prompt, now_unix_seconds);
  if (!encoded.ok()) return encoded.status();
  request.prompt_token_ids = std::move(encoded->token_ids);
  request.opening_tokens = encoded->opening_tokens;
  request.last_message_tokens = encoded->last_text_tokens;
  PreparedChat prepared;
  prepared.thinking = encoded->thinking;
  prepared.answer_format = AnswerFormatOf(model, conversation, *tools, encoded->thinking);
  if (prepared.answer_format != nullptr) PrepareForReading(model, prepared.answer_format, request);
  if (budget.has_value()) {
    absl::Status bound = BoundThinking(model, encoded->thinking, *budget, request);
    if (!bound.ok()) return bound;
  }
  absl::StatusOr<std::string> demanded = DemandedCallGrammar(model, conversation, &*tools);
  if (!demanded.ok()) return demanded.status();
  prepared.start = AnswerStartOf(model, *tools, request.thinking);
  absl::StatusOr<std::string> offered = std::string();
  if (chat.has_form && !chat.has_own_grammar) {
    absl::Status held = HoldCallsBesideForm(model, conversation, &prepared.start, &*tools);
    if (!held.ok()) return held;
  } else if (!chat.has_form) {
    offered = OfferedCallGrammar(model, conversation, prepared.start, &*tools);
  }
  if (!offered.ok()) return offered.status();
  request.grammar = demanded->empty() ? *std::move(offered) : *std::move(demanded);
  prepared.demands_call = !tools->call_start.empty();
  prepared.not_enforced = std::move(tools->not_enforced);
  return prepared;
}

}  // namespace tessera::coordinator
