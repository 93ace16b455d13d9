// The arguments of a call as tags with raw values, as Qwen3-Coder, GLM, MiniMax and DeepSeek V3.2
// write them:
//
//   <parameter=city>\nRom\n</parameter>\n<parameter=days>\n3\n</parameter>\n
//
// Declared properties come in their order; others only where none is declared, as strings. A value
// is a string in raw text where its schema takes strings, else JSON of its schema. Whoever reads
// the text must take a closing tag within a string of such JSON for a part of it.
//
// Thread rule: pure functions. Adds rules to the grammar's text.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/grammar/grammar_text.h"
#include "coordinator/grammar/schema_grammar.h"

namespace tessera::coordinator {

struct TaggedForm {
  std::string key_opening;                 // "<parameter="
  std::string before_text, before_json;    // between a key and its value: ">\n"
  std::string value_closing;               // "\n</parameter>"
  std::string behind_value;                // "\n"
  std::vector<std::string> other_closing;  // tags that end a raw value too; begin with "</"
};

// `reads_as_text`: whether the value of that property is read as a string. `schema`: of an object.
// InvalidArgument with the reason.
absl::StatusOr<SchemaGrammar> AddTaggedArguments(
    const nlohmann::ordered_json& schema, SchemaMode mode, const TaggedForm& form,
    const std::function<bool(const std::string& property)>& reads_as_text, GrammarText* text);

// Any keys, with any texts.
std::string AnyTaggedArguments(const TaggedForm& form, GrammarText* text);

}  // namespace tessera::coordinator
