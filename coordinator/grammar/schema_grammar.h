// A JSON schema as a grammar: every text of the grammar is JSON that the schema accepts.
//
// Not every such JSON is a text of it: properties come in the declared order, objects that declare
// some have no others unless additionalProperties asks for them, numbers and formats are as
// number_grammar.h and pattern_grammar.h have them.
// A keyword that cannot be held is refused by its name and its place in the value ($.a[].b).
//
// Thread rule: pure functions; time and memory are bounded by the limits below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/grammar/grammar_text.h"

namespace tessera::coordinator {

inline constexpr size_t kMaxSchemaBytes = 256 << 10;
inline constexpr size_t kMaxGrammarBytes = 2 << 20;
inline constexpr int kMaxSchemaDepth = 32;
inline constexpr int kMaxSchemaNodes = 10'000;
inline constexpr int64_t kMaxItems = 4096;        // of arrays: longer ones are not written
inline constexpr int64_t kMaxLength = 1'000'000;  // of strings that have one
inline constexpr int64_t kMaxMinLength = 1000;    // likewise: a rule for each character

enum class SchemaMode {
  kStrict,  // what cannot be held is refused
  kLoose,   // and here left out
};

struct SchemaGrammar {
  std::string rule;                   // of `text`: a value of the schema
  std::vector<std::string> left_out;  // as the refusals would have been
};

// Adds the rules of the schema to `text`. InvalidArgument with the reason.
absl::StatusOr<SchemaGrammar> AddSchema(const nlohmann::ordered_json& schema, SchemaMode mode,
                                        GrammarText* text);

}  // namespace tessera::coordinator
