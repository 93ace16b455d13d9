// Grammars of answers to a request with tools: a form that may give way to a call, and calls that
// are demanded.
//
// Thread rule: pure functions. Errors: InvalidArgument naming the field.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/api/chat_tools.h"
#include "coordinator/api/front_door.h"
#include "coordinator/flow/generation.h"
#include "coordinator/grammar/thinking_grammar.h"

namespace tessera::coordinator {

// What may stand before a form, or in its place, in the answer to a chat. `thinking`: as
// PrepareForReading left it.
AnswerStart AnswerStartOf(const ServedModel& model, const ChatTools& tools,
                          const ThinkingMarks& thinking);

// Beside a form of the answer: calls that may come in its place are whole ones, and those of strict
// functions have arguments by their parameters; these leave tools->not_enforced. Nothing in formats
// whose calls begin with no mark of their own, with more than 128 functions, where a call is
// demanded, and in builds without grammars: there a call goes on freely from its first mark.
absl::Status HoldCallsBesideForm(const ServedModel& model,
                                 const nlohmann::ordered_json& conversation, AnswerStart* start,
                                 ChatTools* tools);

// Where tool_choice demands a call (ChatTools::call_start): the grammar of what follows, arguments
// by the functions' parameters. Of any function more calls may follow, unless one is asked for. Of
// those that are strict a keyword that is not held is refused, of others it is left out. Strict
// functions that are held leave tools->not_enforced. Empty where the model's format writes
// arguments in its own way, and in builds without grammars.
absl::StatusOr<std::string> DemandedCallGrammar(const ServedModel& model,
                                                const nlohmann::ordered_json& conversation,
                                                ChatTools* tools);

// Where calls are free and a function is strict: the grammar of any text and then, from where a
// call begins, calls with arguments as above; behind `start`. Leaves tools->not_enforced and is
// empty as above, and in formats whose calls begin with no mark of their own.
absl::StatusOr<std::string> OfferedCallGrammar(const ServedModel& model,
                                               const nlohmann::ordered_json& conversation,
                                               AnswerStart start, ChatTools* tools);

}  // namespace tessera::coordinator
