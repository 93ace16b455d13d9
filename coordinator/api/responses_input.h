// The input of OpenAI's Responses -> the messages of a chat.
//
// Items that follow each other and are the assistant's (reasoning, message, calls) become one
// message. Instructions and the system and developer messages before any other become one system
// message: many templates know no second one. Reasoning is read from its text; what is encrypted
// stays unread. Thread rule: pure functions. Errors: InvalidArgument naming input and the item.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera::coordinator {

// `input`: a string, or an array of items. `instructions` may be empty.
absl::StatusOr<nlohmann::ordered_json> ReadResponsesInput(const std::string& instructions,
                                                          const nlohmann::ordered_json& input);

// The name by which the model knows a function of a namespace; "" is none.
std::string FlatToolName(std::string_view tool_namespace, std::string_view name);

}  // namespace tessera::coordinator
