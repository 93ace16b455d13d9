// OpenAI-compatible request bodies -> what is to be generated. Pure translation: no sockets, no
// clock but the one that is given.
//
// Unknown fields are ignored and listed; a known field of a wrong type or range is InvalidArgument
// naming it (FieldOf); a known one that is not supported yet says so. vLLM's additional fields
// carry vLLM's names. Thread rule: pure functions but for drawn seeds; thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/answer/answer_parser.h"
#include "coordinator/api/chat_prompt.h"
#include "coordinator/api/front_door.h"
#include "coordinator/flow/generation.h"

namespace tessera::coordinator {

// In what form the answer is written.
enum class AnswerForm { kOpenAi, kMessages, kResponses, kEmbeddings, kRanking };

struct RankingTerms;
struct ResponsesTerms;

// One HTTP request: for completions it may hold several prompts, each with its choices.
struct OpenAiCall {
  AnswerForm form = AnswerForm::kOpenAi;
  bool chat = false;
  bool stream = false;
  bool include_usage = false;     // stream_options.include_usage
  bool continuous_usage = false;  // usage so far in every chunk
  bool echo = false;              // completions: the prompt precedes the answer
  bool return_token_ids = false;
  bool timings = false;               // one prompt only
  bool return_tokens_as_ids = false;  // logprobs name tokens as "token_id:N"
  bool show_prompt_logprobs = false;  // the field prompt_logprobs was given
  // How a chat's answers are read; null: all is text.
  std::shared_ptr<const AnswerFormat> answer_format;
  // Responses: what the answer needs to know of its request.
  std::shared_ptr<const ResponsesTerms> responses;
  std::shared_ptr<const RankingTerms> ranking;  // the same of rerank and score
  int64_t dimensions = 0;                       // embeddings: kept of each; 0: all
  int64_t unread_prompt_tokens = 0;             // embeddings: that their rows do not depend on
  bool base64 = false;                          // embeddings: as bytes of little-endian floats
  bool fills_context = false;  // Messages: max_tokens was cut to what the context has left
  std::vector<std::string> not_enforced;  // fields that ask for more than is promised
  int32_t choices_per_prompt = 1;
  int32_t top_logprobs = -1;  // as shown: -1 none
  std::vector<GenerationRequest> prompts;
  std::vector<std::string> ignored_fields;  // names that no field of the endpoint has
  std::string resume_id;  // of the answer that goes on (x-tessera-resume); empty: a new one
  // Headers that say what is left of the client's limits, when it is called; may be empty.
  std::function<std::vector<std::pair<std::string, std::string>>()> limits;

  // The id of the answer: resume_id, or one that is drawn.
  std::string DrawAnswerId(std::string_view prefix) const;
};

// `ordered` and `conversation`: of the same body, as ReadChatBody reads them.
absl::StatusOr<OpenAiCall> ReadCompletionCall(const nlohmann::json& body,
                                              const nlohmann::ordered_json& ordered,
                                              const ServedModel& model);

// Mistral's fill in the middle: a completion with a suffix, answered as a chat is.
absl::StatusOr<OpenAiCall> ReadFimCall(const nlohmann::json& body,
                                       const nlohmann::ordered_json& ordered,
                                       const ServedModel& model);

// Whether a prompt is held to the context: one that is only counted is not.
enum class PromptFit { kContext, kAny };

absl::StatusOr<OpenAiCall> ReadChatCall(const nlohmann::json& body,
                                        const nlohmann::ordered_json& conversation,
                                        const ServedModel& model, int64_t now_unix_seconds,
                                        PromptFit fit = PromptFit::kContext);

}  // namespace tessera::coordinator
