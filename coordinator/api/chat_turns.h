// The messages of a chat -> turns that the model's template writes each at its place. Their content
// and calls are already as the template takes them (chat_messages.h).
//
// What a template cannot write, as probes found (message_forms.h), becomes what it can:
//   several calls in one message      a message for each, with its results behind it
//   a system message behind the first joined to it where it follows at once; else a
//                                     <system-reminder> at the end of the user's turn or of the
//                                     tool's result before it; behind an answer, in the user's turn
//                                     that follows, which is made where there is none
//   a user's message behind another   one message
//   a user's message behind a result  the end of that result
// All of this is the same when the conversation goes on, so that its prefix stays the same.
//
// Thread rule: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "coordinator/jinja/message_forms.h"

namespace tessera::coordinator {

// `messages`: objects with a string role, "developer" only where the template names it.
nlohmann::ordered_json ToTemplateTurns(const MessageForms& forms, nlohmann::ordered_json messages);

}  // namespace tessera::coordinator
