// OpenAI-compatible request bodies -> what is to be generated. Pure translation: no sockets, no
// clock but the one that is given.
//
// Unknown fields are ignored; a known field of a wrong type or range is InvalidArgument naming it
// (FieldOf); a known one that is not supported yet says so. vLLM's additional fields carry vLLM's
// names. Thread rule: pure functions but for drawn seeds; thread-safe.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/api/front_door.h"
#include "coordinator/flow/generation.h"

namespace tessera::coordinator {

// One HTTP request: for completions it may hold several prompts, each with its choices.
struct OpenAiCall {
  bool chat = false;
  bool stream = false;
  bool include_usage = false;  // stream_options.include_usage
  bool echo = false;           // completions: the prompt precedes the answer
  bool return_token_ids = false;
  bool show_prompt_logprobs = false;  // the field prompt_logprobs was given
  int32_t choices_per_prompt = 1;
  int32_t top_logprobs = -1;  // as shown: -1 none
  std::vector<GenerationRequest> prompts;
};

absl::StatusOr<OpenAiCall> ReadCompletionCall(const nlohmann::json& body, const ServedModel& model);

// What of a chat's body its template sees, messages and chat_template_kwargs, in the client's
// order: a template may print an object. `text` is the body, which ParseJson accepted.
absl::StatusOr<nlohmann::ordered_json> ReadConversation(std::string_view text);

// `conversation`: of the same body.
absl::StatusOr<OpenAiCall> ReadChatCall(const nlohmann::json& body,
                                        const nlohmann::ordered_json& conversation,
                                        const ServedModel& model, int64_t now_unix_seconds);

// The prompt of a chat, also for /tokenize: renders the messages of `conversation` with the model's
// template and encodes them.
absl::StatusOr<std::vector<int32_t>> EncodeChat(const ServedModel& model,
                                                const nlohmann::ordered_json& conversation,
                                                bool add_generation_prompt,
                                                int64_t now_unix_seconds);

}  // namespace tessera::coordinator
