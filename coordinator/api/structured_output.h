// The fields of a request that give its answer a form: response_format, structured_outputs and
// guided_json, guided_regex, guided_choice, guided_grammar. At most one of them.
//
// Thread rule: pure functions. Errors: InvalidArgument naming the field.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/api/body_reader.h"
#include "coordinator/grammar/answer_grammar.h"

namespace tessera::coordinator {

struct StructuredOutput {
  std::optional<AnswerGrammar> grammar;   // none: the answer is free
  std::vector<std::string> not_enforced;  // fields that ask for more than is promised
};

// `ordered`: of the same body, with the members of objects in the text's order, in which an answer
// has them. Where the build has no grammars, every form is refused.
absl::StatusOr<StructuredOutput> ReadStructuredOutput(BodyReader& reader,
                                                      const nlohmann::ordered_json& ordered);

}  // namespace tessera::coordinator
