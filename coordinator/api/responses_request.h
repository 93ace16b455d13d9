// OpenAI's Responses -> a chat, as ReadChatCall reads it. Pure translation.
//
// Nothing is stored: `store: true`, and whatever refers to an earlier response, is refused by name.
// Tools of a namespace become functions, custom tools functions of one string, and a search for
// tools that the client runs a function; tools that a server would run are skipped, and named among
// the call's ignored fields.
//
// With `truncation: "auto"` a conversation that does not fit the context loses its oldest turns, as
// few as leave room for max_output_tokens, or where that is not given for an eighth of the context.
//
// Thread rule: pure functions but for drawn seeds. Errors: InvalidArgument naming the field.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/api/front_door.h"
#include "coordinator/api/openai_request.h"

namespace tessera::coordinator {

// A tool whose calls are written otherwise than as plain functions.
struct ResponsesTool {
  std::string name;
  std::string tool_namespace;  // "": none
  bool is_custom = false;
  bool is_search = false;  // of tools, by the client
};

// What the answer needs to know of its request.
struct ResponsesTerms {
  std::map<std::string, ResponsesTool, std::less<>> tools;  // by the name that the model sees
  nlohmann::ordered_json echo;  // members of the response that repeat the request
};

// `conversation`: of the same body, in the client's order.
absl::StatusOr<OpenAiCall> ReadResponsesCall(const nlohmann::json& body,
                                             const nlohmann::ordered_json& conversation,
                                             const ServedModel& model, int64_t now_unix_seconds);

// The tokens of its prompt, which may be more than the context has; no turn is dropped.
absl::StatusOr<int64_t> CountResponsesTokens(const nlohmann::json& body,
                                             const nlohmann::ordered_json& conversation,
                                             const ServedModel& model, int64_t now_unix_seconds);

}  // namespace tessera::coordinator
