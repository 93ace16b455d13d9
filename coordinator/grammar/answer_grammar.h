// The grammar of an answer whose form a client gives: a JSON schema, any JSON object, a regular
// expression, a list of texts, or a grammar of its own.
//
// Thread rule: plain data and pure functions, bounded in time. Errors: InvalidArgument with the
// reason.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/grammar/grammar_text.h"
#include "coordinator/grammar/schema_grammar.h"
#include "coordinator/grammar/thinking_grammar.h"

namespace tessera::coordinator {

// Together; of a client's grammar or of all choices.
inline constexpr size_t kMaxGivenBytes = 64 << 10;

class AnswerGrammar {
 public:
  static absl::StatusOr<AnswerGrammar> OfSchema(const nlohmann::ordered_json& schema,
                                                SchemaMode mode);
  static AnswerGrammar OfAnyObject();
  static absl::StatusOr<AnswerGrammar> OfRegex(std::string_view regex);
  static absl::StatusOr<AnswerGrammar> OfChoices(const std::vector<std::string>& choices);
  // EBNF with a rule `root`. Whether it is one, its compile says.
  static absl::StatusOr<AnswerGrammar> OfEbnf(std::string grammar);

  // What of a schema is not held (SchemaMode::kLoose).
  const std::vector<std::string>& left_out() const { return left_out_; }

  // Whether it is a grammar of the client, which says all by itself.
  bool is_own() const { return !own_.empty(); }
  // The text for the workers.
  std::string Text(const AnswerStart& start = {}) const;

 private:
  GrammarText text_;
  std::string body_;  // of the root
  std::string own_;   // a client's
  std::vector<std::string> left_out_;
};

}  // namespace tessera::coordinator
