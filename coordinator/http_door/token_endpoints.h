// The endpoints around the tokenizer and the chat template: /tokenize, /detokenize, /apply-template
// and /tokenizer_info.
//
// Bodies are vLLM's, of /apply-template llama.cpp's. Thread rule: pure functions. Errors:
// InvalidArgument naming the field; NotFound for another model.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/api/front_door.h"

namespace tessera::coordinator {

struct TokenAnswer {
  nlohmann::ordered_json json;
  std::vector<std::string> ignored_fields;  // names that the endpoint's table lacks
};

// `conversation`: of the same body, in the client's order.
absl::StatusOr<TokenAnswer> AnswerTokenize(const nlohmann::json& body,
                                           const nlohmann::ordered_json& conversation,
                                           const ServedModel& model, int64_t now_unix_seconds);
absl::StatusOr<TokenAnswer> AnswerDetokenize(const nlohmann::json& body, const ServedModel& model);

// {"prompt": text}: what a chat of the same fields is generated from, before it is tokenised.
absl::StatusOr<TokenAnswer> AnswerApplyTemplate(const nlohmann::json& body,
                                                const nlohmann::ordered_json& conversation,
                                                const ServedModel& model, int64_t now_unix_seconds);

// What evaluation harnesses need of a tokenizer that they do not have: its special tokens, the
// chat template, the longest sequence.
nlohmann::ordered_json TokenizerInfo(const ServedModel& model);

}  // namespace tessera::coordinator
