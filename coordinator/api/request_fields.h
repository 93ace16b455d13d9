// The fields of each endpoint's request body: one table that the readers, the OpenAPI document and
// the list of ignored fields all use. A reader refuses to read a field that is not in its table.
//
// Thread rule: constants.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tessera::coordinator {

enum class FieldKind {
  kBool,
  kInteger,
  kNumber,
  kString,
  kStrings,         // a string, or an array of at most `highest` strings
  kTokenIds,        // an array of integers >= 0
  kObject,          // any members
  kLogitBias,       // token id -> number
  kPrompt,          // text, texts, token ids, or arrays of token ids
  kMessages,        // of a chat
  kTools,           // an array of functions, as OpenAI has them
  kToolChoice,      // "none", "auto", "required", or a function
  kStreamOptions,   // an object with the fields of StreamOptionFields
  kResponseFormat,  // {"type": "text"}, "json_object" or "json_schema"
  kJsonSchema,      // an object, true or false, or a string that holds one of these
  kRefused,         // known, and refused unless it asks for nothing
  kDocument,        // read by proto/document
};

struct RequestField {
  std::string_view name;
  FieldKind kind = FieldKind::kBool;
  // Both ends are allowed. Integers and lengths, then numbers.
  int64_t lowest = 0, highest = 0;
  double min = 0, max = 0;
  bool above_min = false;  // of numbers: `min` itself is not allowed
  bool required = false;
  // Accepted, type-checked and without effect on the answer.
  bool no_effect = false;
  // kRefused: a string that asks for nothing, and why anything else is refused.
  std::string_view harmless = {};
  std::string_view reason = {};
};

std::span<const RequestField> CompletionFields();
std::span<const RequestField> FimFields();
std::span<const RequestField> ChatFields();
std::span<const RequestField> ResponsesFields();
std::span<const RequestField> MessagesFields();
std::span<const RequestField> CountTokensFields();  // of Messages
std::span<const RequestField> EmbeddingsFields();
std::span<const RequestField> RerankFields();
std::span<const RequestField> ScoreFields();
std::span<const RequestField> TokenizeFields();
std::span<const RequestField> ApplyTemplateFields();
std::span<const RequestField> DetokenizeFields();
std::span<const RequestField> StreamOptionFields();

// Null where the table has no such field.
const RequestField* FindField(std::span<const RequestField> fields, std::string_view name);

}  // namespace tessera::coordinator
