#include "coordinator/jinja/expression_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "coordinator/jinja/parser.h"
#include "coordinator/jinja/values/status.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

std::string Describe(const Token& token) {
  switch (token.type) {
    case TokenType::kData: return "text";
    case TokenType::kBlockBegin: return "{%";
    case TokenType::kBlockEnd: return "%}";
    case TokenType::kVariableBegin: return "{{";
    case TokenType::kVariableEnd: return "}}";
    case TokenType::kString: return "a string";
    case TokenType::kInteger:
    case TokenType::kFloat: return "a number";
    case TokenType::kEnd: return "the end of the template";
    default: return StrCat("'", token.text, "'");
  }
}

std::optional<Comparison> ComparisonOf(const Token& token) {
  constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},
      {"<", Comparison::kLess},    {"<=", Comparison::kLessOrEqual},
      {">", Comparison::kGreater}, {">=", Comparison::kGreaterOrEqual},
  };
  for (const auto& [text, comparison] : kOperators) {
    if (token.IsOperator(text)) {
      return comparison;
    }
  }
  return std::nullopt;
}

}  // namespace

ExpressionParser::ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  for (const char* name : {"loop", "caller", "varargs", "kwargs"}) {
    Intern(name);
  }
}

NameId ExpressionParser::Intern(const std::string& name) {
  const auto [found, added] = ids_.try_emplace(name, static_cast<NameId>(names_.size()));
  if (added) {
    names_.push_back(name);
    uses_.push_back(0);
  }
  return found->second;
}

Token ExpressionParser::Take() {
  Token token = tokens_[at_];
  at_ = std::min(at_ + 1, tokens_.size() - 1);
  return token;
}

bool ExpressionParser::SkipOperator(std::string_view op) {
  const bool found = current().IsOperator(op);
  at_ += found ? 1 : 0;
  return found;
}

bool ExpressionParser::SkipName(std::string_view name) {
  const bool found = current().IsName(name);
  at_ += found ? 1 : 0;
  return found;
}

absl::Status ExpressionParser::Unexpected(std::string_view wanted) const {
  return SyntaxError(current().line,
                     wanted.empty() ? StrCat("unexpected ", Describe(current()))
                                    : StrCat("expected ", wanted, ", got ", Describe(current())));
}

absl::Status ExpressionParser::ExpectOperator(std::string_view op) {
  return SkipOperator(op) ? absl::OkStatus() : Unexpected(StrCat("'", op, "'"));
}

absl::Status ExpressionParser::Expect(TokenType type, std::string_view what) {
  if (current().type != type) {
    return Unexpected(what);
  }
  Take();
  return absl::OkStatus();
}

absl::StatusOr<std::string> ExpressionParser::ExpectName() {
  if (current().type != TokenType::kName) {
    return Unexpected("a name");
  }
  return Take().text;
}

ExpressionParser::Node ExpressionParser::Make(ExpressionKind kind, int line) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  return node;
}

void ExpressionParser::Add(Expression& node, Node operand) {
  if (operand != nullptr) {
    node.height = std::max(node.height, operand->height + 1);
  }
  node.operands.push_back(std::move(operand));
}

void ExpressionParser::AddArguments(Expression& node) {
  const auto add = [&node](const ExpressionPtr& argument) {
    if (argument != nullptr) {
      node.height = std::max(node.height, argument->height + 1);
    }
  };
  std::for_each(node.call.positional.begin(), node.call.positional.end(), add);
  for (const auto& keyword : node.call.keyword) {
    add(keyword.second);
  }
  add(node.call.all_positional);
  add(node.call.all_keyword);
}

ExpressionParser::Result ExpressionParser::Checked(Node node) {
  if (node->height > kMaxExpressionHeight) {
    return SyntaxError(node->line, StrCat("the expression nests deeper than the limit of ",
                                          kMaxExpressionHeight, " levels"));
  }
  return node;
}

ExpressionParser::Result ExpressionParser::ParseTuple(bool with_conditional,
                                                      std::string_view end_name,
                                                      bool in_parentheses) {
  const int line = current().line;
  Node tuple = Make(ExpressionKind::kTuple, line);
  bool is_tuple = false;
  const auto at_end = [&] {
    return current().type == TokenType::kVariableEnd || current().type == TokenType::kBlockEnd ||
           current().IsOperator(")") || (!end_name.empty() && current().IsName(end_name));
  };
  while (!at_end()) {
    JINJA_ASSIGN_OR_RETURN(Node item, with_conditional ? ParseConditional() : ParseOr());
    Add(*tuple, std::move(item));
    if (!SkipOperator(",")) {
      break;
    }
    is_tuple = true;
  }
  if (!is_tuple && tuple->operands.size() == 1) {
    return std::move(tuple->operands[0]);
  }
  if (!is_tuple && !in_parentheses) {
    return Unexpected("an expression");
  }
  return Checked(std::move(tuple));
}

ExpressionParser::Result ExpressionParser::ParseConditional() {
  // The one place through which all nesting of expressions passes.
  if (++depth_ > kMaxExpressionHeight) {
    return SyntaxError(current().line, StrCat("the expression nests deeper than the limit of ",
                                              kMaxExpressionHeight, " levels"));
  }
  const size_t unknown_names = UnknownNames();
  bool conditional_found = false;
  JINJA_ASSIGN_OR_RETURN(Node value, ParseOr());
  while (current().IsName("if")) {
    conditional_found = true;
    Node conditional = Make(ExpressionKind::kConditional, Take().line);
    JINJA_ASSIGN_OR_RETURN(Node condition, ParseOr());
    Node otherwise;
    if (SkipName("else")) {
      JINJA_ASSIGN_OR_RETURN(otherwise, ParseConditional());
    }
    Add(*conditional, std::move(condition));
    Add(*conditional, std::move(value));
    Add(*conditional, std::move(otherwise));
    JINJA_ASSIGN_OR_RETURN(value, Checked(std::move(conditional)));
  }
  if (conditional_found) {
    ForgiveUnknownNames(unknown_names);
  }
  --depth_;
  return value;
}

ExpressionParser::Result ExpressionParser::ParseOr() {
  JINJA_ASSIGN_OR_RETURN(Node left, ParseAnd());
  while (current().IsName("or")) {
    Node both = Make(ExpressionKind::kOr, Take().line);
    JINJA_ASSIGN_OR_RETURN(Node right, ParseAnd());
    Add(*both, std::move(left));
    Add(*both, std::move(right));
    JINJA_ASSIGN_OR_RETURN(left, Checked(std::move(both)));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::ParseAnd() {
  JINJA_ASSIGN_OR_RETURN(Node left, ParseNot());
  while (current().IsName("and")) {
    Node both = Make(ExpressionKind::kAnd, Take().line);
    JINJA_ASSIGN_OR_RETURN(Node right, ParseNot());
    Add(*both, std::move(left));
    Add(*both, std::move(right));
    JINJA_ASSIGN_OR_RETURN(left, Checked(std::move(both)));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::ParseNot() {
  std::vector<int> lines;
  while (current().IsName("not")) {
    lines.push_back(Take().line);
  }
  JINJA_ASSIGN_OR_RETURN(Node node, ParseCompare());
  for (size_t i = lines.size(); i > 0; --i) {
    Node negation = Make(ExpressionKind::kNot, lines[i - 1]);
    Add(*negation, std::move(node));
    JINJA_ASSIGN_OR_RETURN(node, Checked(std::move(negation)));
  }
  return node;
}

ExpressionParser::Result ExpressionParser::ParseCompare() {
  JINJA_ASSIGN_OR_RETURN(Node first, ParseSum());
  Node chain = Make(ExpressionKind::kCompare, first->line);
  Add(*chain, std::move(first));
  while (true) {
    std::optional<Comparison> comparison = ComparisonOf(current());
    if (current().IsName("in")) {
      comparison = Comparison::kIn;
    } else if (current().IsName("not") && next().IsName("in")) {
      Take();
      comparison = Comparison::kNotIn;
    }
    if (!comparison.has_value()) {
      break;
    }
    chain->line = Take().line;
    JINJA_ASSIGN_OR_RETURN(Node operand, ParseSum());
    chain->comparisons.push_back(*comparison);
    Add(*chain, std::move(operand));
  }
  if (chain->comparisons.empty()) {
    return std::move(chain->operands[0]);
  }
  return Checked(std::move(chain));
}

template <typename Operand>
ExpressionParser::Result ExpressionParser::ParseBinary(
    std::initializer_list<std::pair<std::string_view, Operator>> operators, Operand parse_operand) {
  JINJA_ASSIGN_OR_RETURN(Node left, (this->*parse_operand)());
  while (true) {
    const auto* found = std::find_if(operators.begin(), operators.end(), [this](const auto& op) {
      return current().IsOperator(op.first);
    });
    if (found == operators.end()) {
      return left;
    }
    Node binary = Make(ExpressionKind::kBinary, Take().line);
    binary->op = found->second;
    JINJA_ASSIGN_OR_RETURN(Node right, (this->*parse_operand)());
    Add(*binary, std::move(left));
    Add(*binary, std::move(right));
    JINJA_ASSIGN_OR_RETURN(left, Checked(std::move(binary)));
  }
}

ExpressionParser::Result ExpressionParser::ParseSum() {
  return ParseBinary({{"+", Operator::kAdd}, {"-", Operator::kSubtract}},
                     &ExpressionParser::ParseConcatenation);
}

ExpressionParser::Result ExpressionParser::ParseConcatenation() {
  JINJA_ASSIGN_OR_RETURN(Node first, ParseProduct());
  if (!current().IsOperator("~")) {
    return first;
  }
  Node all = Make(ExpressionKind::kConcatenate, current().line);
  Add(*all, std::move(first));
  while (SkipOperator("~")) {
    JINJA_ASSIGN_OR_RETURN(Node piece, ParseProduct());
    Add(*all, std::move(piece));
  }
  return Checked(std::move(all));
}

ExpressionParser::Result ExpressionParser::ParseProduct() {
  return ParseBinary({{"*", Operator::kMultiply},
                      {"/", Operator::kDivide},
                      {"//", Operator::kFloorDivide},
                      {"%", Operator::kModulo}},
                     &ExpressionParser::ParsePower);
}

ExpressionParser::Result ExpressionParser::ParsePower() {
  JINJA_ASSIGN_OR_RETURN(Node left, ParseUnary(true));
  while (current().IsOperator("**")) {
    Node power = Make(ExpressionKind::kBinary, Take().line);
    power->op = Operator::kPower;
    JINJA_ASSIGN_OR_RETURN(Node right, ParseUnary(true));
    Add(*power, std::move(left));
    Add(*power, std::move(right));
    JINJA_ASSIGN_OR_RETURN(left, Checked(std::move(power)));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::ParseUnary(bool with_filters) {
  std::vector<Node> signs;
  while (current().IsOperator("-") || current().IsOperator("+")) {
    const bool negate = current().IsOperator("-");
    signs.push_back(Make(negate ? ExpressionKind::kNegate : ExpressionKind::kPlus, Take().line));
  }
  JINJA_ASSIGN_OR_RETURN(Node node, ParsePrimary());
  JINJA_ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  for (; !signs.empty(); signs.pop_back()) {
    Add(*signs.back(), std::move(node));
    JINJA_ASSIGN_OR_RETURN(node, Checked(std::move(signs.back())));
  }
  return with_filters ? ParseFiltersAndTests(std::move(node)) : Result(std::move(node));
}

}  // namespace tessera::coordinator::jinja
