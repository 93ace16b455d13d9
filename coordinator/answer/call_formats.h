// The formats in which model families write tool calls: one row each, found from the chat template
// or by name (--tool-call-parser; names are vLLM's where it has the format).
//
// A format is a row of call_formats.cc, a CallBody where none of the *_body files reads its
// arguments, a CallFrame where grammars are to hold them, and cases in answer_parser_test and
// template_calls_test.
//
// Thread rule: constants and pure functions.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/answer/call_parser.h"
#include "coordinator/answer/tool_schemas.h"
#include "coordinator/grammar/tagged_grammar.h"

namespace tessera::coordinator {

// What ids of calls look like to the family's template.
enum class CallIds {
  kOpenAi,          // "call_" and 24 hex digits
  kNineCharacters,  // letters and digits; Mistral's templates refuse others
  kNamed,           // Kimi K2's functions.NAME:INDEX, INDEX counting the conversation's calls
};

// How calls stand whose arguments a grammar can hold: `section`, then each call, which goes on from
// call_start with its arguments and `close`; `next` between two; `finish`.
struct CallFrame {
  std::string section = {};        // what call_start begins with that comes once
  std::string behind_number = {};  // not empty: behind call_start stand a number and this
  std::string close = {};
  std::optional<std::string> next = {};  // none: one call only
  std::string finish = {};
  std::optional<TaggedForm> tags = {};  // of the arguments; none: they are a JSON object
};

struct CallFormat {
  std::string_view name;
  std::vector<std::string_view> words;  // of the template's source
  // Texts that begin a call: where one stands in an answer's thinking, that ends.
  std::vector<std::string> opening;
  // Special tokens that the parser needs to see.
  std::vector<std::string> markers;
  std::unique_ptr<CallParser> (*make_parser)(const ToolSchemas& schemas);  // schemas live as long
  // How an answer begins that is a call of `function` ("": of any), up to where the model chooses.
  std::string (*call_start)(std::string_view function);
  CallIds ids = CallIds::kOpenAi;
  bool has_thinking = false;            // the parser finds the thinking too
  std::optional<CallFrame> frame = {};  // none: no grammar has the arguments
};

std::span<const CallFormat> CallFormats();
// Null where there is none of that name.
const CallFormat* FindCallFormat(std::string_view name);
// Those whose words a template has, the likeliest first.
std::vector<const CallFormat*> RecognizeCallFormats(
    const std::function<bool(std::string_view)>& template_names);

}  // namespace tessera::coordinator
