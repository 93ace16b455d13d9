// A call that is demanded of a model whose family writes calls in some format: the grammar that its
// answer gets, and how what it writes is read.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/answer/message_builder.h"
#include "tests/coordinator/grammar/grammar_probe.h"

namespace tessera::tests {

class CallProbe {
 public:
  // `tools` as in a chat; tool_choice is "required".
  static absl::StatusOr<CallProbe> Create(std::string_view format,
                                          const nlohmann::ordered_json& tools);

  // Whether the answer, which begins with the calls, is one of the grammar.
  bool Accepts(std::string_view answer) const;
  // What stands in an answer of a grammar.
  coordinator::AnswerMessage Read(std::string_view answer) const;
  // An answer of a model of random weights; nothing where it has not come to an end.
  std::optional<std::string> RandomAnswer(uint64_t seed, int max_tokens) const;

 private:
  CallProbe(GrammarProbe grammar, std::shared_ptr<const coordinator::AnswerFormat> format)
      : grammar_(std::move(grammar)), format_(std::move(format)) {}

  GrammarProbe grammar_;
  std::shared_ptr<const coordinator::AnswerFormat> format_;
};

}  // namespace tessera::tests
