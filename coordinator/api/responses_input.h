// The input of OpenAI's Responses -> the messages of a chat, and the tools that stand among them.
//
// Items that follow each other and are the assistant's (reasoning, message, calls) become one
// message. Instructions and the system and developer messages before any other become one system
// message: many templates know no second one. Reasoning is read from its text; what is encrypted
// stays unread. Calls of OpenAI's own tools that a client runs are calls of functions with the
// tool's name; what a server did is skipped. Thread rule: pure functions. Errors: InvalidArgument
// naming input and the item.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::coordinator {

struct ResponsesInput {
  nlohmann::ordered_json messages;
  // Arrays of tools, by where they stand.
  std::vector<std::pair<std::string, nlohmann::ordered_json>> tools;
  std::vector<std::string> skipped;  // items
};

// `input`: a string, or an array of items. `instructions` may be empty.
absl::StatusOr<ResponsesInput> ReadResponsesInput(const std::string& instructions,
                                                  const nlohmann::ordered_json& input);

// The name by which the model knows a function of a namespace; "" is none.
std::string FlatToolName(std::string_view tool_namespace, std::string_view name);

}  // namespace tessera::coordinator
