// Anthropic's Messages -> a chat, as ReadChatCall reads it. Pure translation.
//
// Content blocks become a message's text, thinking, calls and results; a user's turn with results
// becomes tool messages, then the text. Blocks without effect on the prompt are dropped: a system
// block that is a billing line (it changes with each request, and would keep every prompt out of
// the prefix cache), redacted thinking. Tools that a server would run are skipped, and named among
// the call's ignored fields. max_tokens is cut to what the context has left.
//
// Thread rule: pure functions but for drawn seeds. Errors: InvalidArgument naming the field.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "coordinator/api/front_door.h"
#include "coordinator/api/openai_request.h"

namespace tessera::coordinator {

// `conversation`: of the same body, in the client's order.
absl::StatusOr<OpenAiCall> ReadMessagesCall(const nlohmann::json& body,
                                            const nlohmann::ordered_json& conversation,
                                            const ServedModel& model, int64_t now_unix_seconds);

// The tokens of the prompt that the same body would give, which may be beyond the context.
absl::StatusOr<int64_t> CountMessagesTokens(const nlohmann::json& body,
                                            const nlohmann::ordered_json& conversation,
                                            const ServedModel& model, int64_t now_unix_seconds);

}  // namespace tessera::coordinator
