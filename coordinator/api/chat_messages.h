// The messages of a chat as clients send them -> as the model's template takes them.
//
// Content becomes text or parts, arguments of tool calls become objects or strings (message_forms.h
// says which a template takes; a string that holds no object, as of a call that was cut short,
// becomes the member INVALID_JSON of one); an assistant's reasoning is put under every name by
// which templates ask for it. Ids of calls become ones of the family's form, where its template
// refuses others, the same for the same id. A message of role "developer" becomes a "system" one
// where the template does not name that role. Turns that the template cannot write become others
// (chat_turns.h). Everything else stays as it was sent, in the client's order.
//
// Thread rule: pure functions. Errors: InvalidArgument naming the field and the message's index.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "coordinator/answer/call_formats.h"
#include "coordinator/jinja/message_forms.h"

namespace tessera::coordinator {

// `messages` is an array.
absl::StatusOr<nlohmann::ordered_json> ToTemplateMessages(const nlohmann::ordered_json& messages,
                                                          const ProbedTemplate& probed,
                                                          CallIds ids = CallIds::kOpenAi);

}  // namespace tessera::coordinator
