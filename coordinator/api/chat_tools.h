// The tools of a chat: what of them the template sees, and how the answer is read.
//
// Thread rule: pure functions but for drawn ids. Errors: InvalidArgument naming the field.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/answer/answer_parser.h"
#include "coordinator/api/front_door.h"

namespace tessera::coordinator {

struct ChatTools {
  // The template shows them, and calls are looked for. False: none were sent, or tool_choice is
  // "none".
  bool offered = false;
  // tool_choice "required" or a function: the answer begins so.
  std::string call_start;
  bool one_call = false;  // parallel_tool_calls is false, or tool_choice names the function
  // Fields that ask for more than is promised: the functions that are strict.
  std::vector<std::string> not_enforced;
};

// Whether tool_choice is OpenAI's {"type": "allowed_tools"}: a mode for some of the tools.
bool HasAllowedTools(const nlohmann::ordered_json& conversation);
// Leaves such a body those tools alone, and the mode as its tool_choice.
absl::Status KeepAllowedTools(nlohmann::ordered_json& conversation);

// Reads tools, tool_choice and parallel_tool_calls of a chat's body.
absl::StatusOr<ChatTools> ReadChatTools(const ServedModel& model,
                                        const nlohmann::ordered_json& conversation,
                                        std::optional<bool> parallel_tool_calls);

// How the answer to a prompt is read, whose end has thinking at `thinking`. Null: all is text.
std::shared_ptr<const AnswerFormat> AnswerFormatOf(const ServedModel& model,
                                                   const nlohmann::ordered_json& conversation,
                                                   const ChatTools& tools, PromptThinking thinking);

// What the flow needs to know for it: special tokens that are shown, where stop strings sleep, and
// the end behind the one call. `format` is not null.
void PrepareForReading(const ServedModel& model, std::shared_ptr<const AnswerFormat> format,
                       GenerationRequest& request);

// thinking_token_budget: the request's thinking ends by then, where the prompt does not close it.
// The end (a line break and the closing mark) comes on top of the budget. InvalidArgument where the
// model thinks and its tokenizer has no token of its own for the closing mark, or it thinks in
// channels.
absl::Status BoundThinking(const ServedModel& model, PromptThinking thinking, int64_t tokens,
                           GenerationRequest& request);

}  // namespace tessera::coordinator
