// The expression half of the parser, and the token stream both halves read.
//
// Used by one thread, by the statement parser only. Precedence, from weak to strong: inline if, or,
// and, not, comparisons and in, + -, ~, * / // %, **, unary + -, then attributes, items, calls,
// filters and tests. Two-operand operators group to the left, ** too. Operators are in
// expression_parser.cc, their operands in operand_parser.cc.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/jinja/ast.h"
#include "coordinator/jinja/lexer.h"

namespace tessera::coordinator::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens);

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token Take();
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  absl::Status ExpectOperator(std::string_view op);
  absl::Status Expect(TokenType type, std::string_view what);
  absl::StatusOr<std::string> ExpectName();
  absl::Status Unexpected(std::string_view wanted = "") const;

  using Result = absl::StatusOr<std::unique_ptr<Expression>>;
  Result ParseExpression() { return ParseConditional(); }
  // One expression, or several with commas between as a tuple. `end_name` ends it as tag ends do.
  Result ParseTuple(bool with_conditional = true, std::string_view end_name = "",
                    bool in_parentheses = false);
  // | name(...) | ...; of `operand`, which is null in set and filter blocks. `started`: behind the
  // |.
  Result ParseFilters(std::unique_ptr<Expression> operand, bool started);

  NameId Intern(const std::string& name);
  std::vector<std::string> TakeNames() { return std::move(names_); }
  // Unknown filters and tests are an error at the end, unless what they stand in was forgiven: as
  // in Jinja, they fail behind an `if` only when they are reached, so templates can ask for them
  // first.
  size_t UnknownNames() const { return unknown_names_.size(); }
  void ForgiveUnknownNames(size_t from) { unknown_names_.resize(from); }
  absl::Status UnknownNamesStatus() const {
    return unknown_names_.empty() ? absl::OkStatus() : unknown_names_.front();
  }

  // How often each of loop, caller, varargs and kwargs was read so far.
  int Uses(NameId name) const { return uses_[static_cast<size_t>(name)]; }

 private:
  using Node = std::unique_ptr<Expression>;

  Result ParseConditional();
  Result ParseOr();
  Result ParseAnd();
  Result ParseNot();
  Result ParseCompare();
  Result ParseSum();
  Result ParseConcatenation();
  Result ParseProduct();
  Result ParsePower();
  Result ParseUnary(bool with_filters);
  Result ParsePrimary();
  Result ParseNameOrConstant();
  Result ParseListLiteral();
  Result ParseDictLiteral();
  Result ParsePostfix(Node node);
  Result ParseFiltersAndTests(Node node);
  Result ParseDot(Node node);
  Result ParseSubscript(Node node);
  Result ParseSubscripted(Node node, bool& is_slice);
  Result ParseCall(Node node);
  Result ParseTest(Node node);
  absl::Status ParseTestArguments(Expression& test);
  absl::Status ParseArguments(CallArguments& call);
  absl::Status ParseArgument(CallArguments& call, int line);
  // Notes the unknown one, or refuses it where jinja2 has it and we do not.
  void NoteUnknown(std::string_view kind, const std::string& name, int line);
  void CheckNamedFilterOrTest(const Expression& filter);

  template <typename Operand>
  Result ParseBinary(std::initializer_list<std::pair<std::string_view, Operator>> operators,
                     Operand parse_operand);

  Node Make(ExpressionKind kind, int line) const;
  // Adds an operand and keeps the height.
  static void Add(Expression& node, Node operand);
  // Keeps the height where the call's arguments are higher.
  static void AddArguments(Expression& node);
  // Refuses trees beyond kMaxExpressionHeight.
  static Result Checked(Node node);

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<std::string> names_;  // by NameId
  absl::flat_hash_map<std::string, NameId> ids_;
  std::vector<absl::Status> unknown_names_;
  std::vector<int> uses_;  // by NameId: how often read
};

}  // namespace tessera::coordinator::jinja
