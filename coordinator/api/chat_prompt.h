// The messages of a chat -> the token ids of its prompt, by the model's template.
//
// Thread rule: pure functions. Errors: InvalidArgument naming the field.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/api/front_door.h"
#include "coordinator/tokenizer/text/split_json.h"

namespace tessera::coordinator {

// A body. What a chat's template sees of it, messages, tools and chat_template_kwargs, is read in
// the client's order, because a template may print an object; tool_choice, Messages' system,
// Responses' input and text, and the fields of structured_output.h too.
absl::StatusOr<SplitJson> ReadChatBody(std::string_view text, const JsonLimits& limits);

struct ChatPromptOptions {
  bool add_generation_prompt = true;
  // The prompt ends with the last message's content, whose turn stays open: the answer continues
  // it. As transformers' apply_chat_template does it: white space that the template trims is not
  // part of the prompt.
  bool continue_final_message = false;
  bool add_special_tokens = false;  // beside those that the template writes
  bool must_fit = false;            // text that cannot fit into the context is refused unread
  bool show_tools = false;          // the conversation's
  std::string answer_start = {};  // stands behind the prompt; thinking that is open ends before it
  // Variables of the template where the client's own do not say otherwise.
  std::optional<bool> enable_thinking = {};
  std::optional<std::string> reasoning_effort = {};
};

struct ChatPrompt {
  std::vector<int32_t> token_ids;
  PromptThinking thinking = PromptThinking::kNone;  // at its end, by the model's marks
  int32_t opening_tokens = 0;    // of token_ids, those behind the last text of the client
  int32_t last_text_tokens = 0;  // and those from the begin of that text on
};

struct RenderedChat {
  std::vector<TextSegment> segments;
  PromptThinking thinking = PromptThinking::kNone;  // at their end, by the model's marks
};

absl::StatusOr<RenderedChat> RenderChat(const ServedModel& model,
                                        const nlohmann::ordered_json& conversation,
                                        const ChatPromptOptions& options, int64_t now_unix_seconds);

// Whether the template takes that reasoning_effort: it names the variable, and renders a chat with
// it. Some refuse values that they do not know.
bool TakesReasoningEffort(const ServedModel& model, const std::string& effort);

// The same as token ids.
absl::StatusOr<ChatPrompt> EncodeChat(const ServedModel& model,
                                      const nlohmann::ordered_json& conversation,
                                      const ChatPromptOptions& options, int64_t now_unix_seconds);

// What a client gave, absent values included. InvalidArgument where a generation prompt is asked
// for as well as the continuation of the last message.
absl::StatusOr<ChatPromptOptions> ReadChatPromptOptions(std::optional<bool> add_generation_prompt,
                                                        std::optional<bool> continue_final_message,
                                                        std::optional<bool> add_special_tokens);

}  // namespace tessera::coordinator
