// Writes the rules of a schema and of all that it contains; see schema_grammar.h.
//
// NotFound means: no value satisfies this schema. An alternative or an optional member that has
// none is left out; where one is needed, its owner has none either.
//
// Thread rule: one thread. Borrows the root schema and the grammar's text.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/grammar/grammar_text.h"
#include "coordinator/grammar/json_grammar.h"
#include "coordinator/grammar/pattern_grammar.h"
#include "coordinator/grammar/raw_text_grammar.h"
#include "coordinator/grammar/schema_grammar.h"

namespace tessera::coordinator {

class SchemaWriter {
 public:
  using Schema = nlohmann::ordered_json;

  // `raw`: of strings only, which are written so and not as JSON; it must live as long.
  SchemaWriter(const Schema& root, SchemaMode mode, GrammarText* text,
               RawTextGrammar* raw = nullptr);

  // A oneOf whose schemas share values is refused, and not narrowed to those of one alone.
  void RefuseCommonValues() { narrows_ = false; }
  // The rule of a schema; `place` of its value, for errors.
  absl::StatusOr<std::string> RuleOf(const Schema& schema, const std::string& place);
  // Whether every rule has a text: a schema may demand itself for ever.
  absl::Status CheckEnds(const std::string& rule) const;
  std::vector<std::string> TakeLeftOut() { return std::move(left_out_); }

 private:
  using Body = absl::StatusOr<std::string>;

  // schema_writer.cc
  absl::Status Invalid(const std::string& place, std::string_view keyword,
                       std::string_view what) const;
  absl::Status Refuse(const std::string& place, std::string_view keyword,
                      std::string_view why = {});
  Body BodyOf(const Schema& flat, const std::string& place);
  Body WaysBody(const Schema& flat, const char* keyword, const std::string& place);
  Body AnyBody(const std::vector<Schema>& ways, const std::string& place);
  Body ValuesBody(const Schema& flat, const std::string& place);
  Body TypeBody(const std::string& type, const Schema& flat, const std::string& place);
  absl::StatusOr<std::vector<std::string>> TypesOf(const Schema& flat,
                                                   const std::string& place) const;
  std::string AnyValue() { return raw_ == nullptr ? json_.Value() : raw_->string(); }
  Body StringBody(const Schema& flat, const std::string& place);
  Body BoundedStringBody(PatternLengths lengths, const std::string& place);
  Body NumberBodyOf(const Schema& flat, bool integer, const std::string& place);
  absl::StatusOr<std::optional<int64_t>> Count(const Schema& flat, const char* keyword,
                                               const std::string& place) const;

  // schema_containers.cc
  Body ObjectBodyOf(const Schema& flat, const std::string& place);
  absl::StatusOr<std::string> OtherMember(const Schema& flat, const Schema& properties,
                                          const std::string& place);
  absl::StatusOr<Schema> AllProperties(const Schema& flat, const std::string& place);
  absl::Status CheckCounts(const Schema& flat, size_t declared, bool open,
                           const std::string& place);
  Body ArrayBodyOf(const Schema& flat, const std::string& place);
  Body DistinctItemsBody(const Schema& flat, int64_t min, int64_t max);
  Body ItemsBody(const Schema& prefix, const Schema& rest, int64_t min, int64_t max,
                 const std::string& place);

  // The rules that a text of the last of open_ needs, as one more way to have one.
  void Need(std::vector<std::string> rules);

  const Schema& root_;
  const SchemaMode mode_;
  GrammarText& text_;
  JsonGrammar json_;
  RawTextGrammar* const raw_;
  std::map<std::string, std::string> rules_;                            // by the schema's text
  std::map<std::string, std::vector<std::vector<std::string>>> needs_;  // by rule
  std::vector<std::string> open_;                                       // rules in hand
  bool narrows_ = true;
  std::vector<std::string> left_out_;
  int nodes_ = 0;
};

}  // namespace tessera::coordinator
