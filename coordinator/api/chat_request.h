// The rest of a chat's request once its door has read it: prompt, tools and thinking become a
// generation's.
// Thread rule: pure functions but for drawn ids. Errors: InvalidArgument naming the field.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/answer/answer_parser.h"
#include "coordinator/api/chat_prompt.h"
#include "coordinator/api/front_door.h"
#include "coordinator/grammar/thinking_grammar.h"

namespace tessera::coordinator {

struct ChatRequest {
  ChatPromptOptions prompt;
  std::optional<bool> parallel_tool_calls;
  std::optional<int64_t> thinking_token_budget;  // 0: the template leaves thinking out if it can
  bool has_form = false;         // the answer has one, beside which calls are offered
  bool has_own_grammar = false;  // the form is a client's grammar, which says itself what calls are
};

struct PreparedChat {
  PromptThinking thinking = PromptThinking::kNone;    // at the prompt's end
  std::shared_ptr<const AnswerFormat> answer_format;  // null: all is text
  std::vector<std::string> not_enforced;              // fields that ask for more than is promised
  AnswerStart start;                                  // what may stand before a form of the answer
  bool demands_call = false;                          // the answer goes on with a call's name
};

// Fills the prompt of `request`, what its flow needs to read the answer, and the grammar of a call
// that is demanded. Not checked against the context.
absl::StatusOr<PreparedChat> PrepareChat(const ServedModel& model,
                                         const nlohmann::ordered_json& conversation,
                                         ChatRequest chat, int64_t now_unix_seconds,
                                         GenerationRequest& request);

}  // namespace tessera::coordinator
