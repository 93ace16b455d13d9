// What operators work on: literals, names, attributes, items, calls, filters and tests.

#include <algorithm>
#include <iterator>
#include <utility>

#include "coordinator/jinja/expression_parser.h"
#include "coordinator/jinja/values/methods.h"
#include "coordinator/jinja/values/status.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {

ExpressionParser::Result ExpressionParser::ParsePrimary() {
  const Token& token = current();
  switch (token.type) {
    case TokenType::kName: return ParseNameOrConstant();
    case TokenType::kString: {
      Node node = Make(ExpressionKind::kConstant, token.line);
      std::string text;
      while (current().type == TokenType::kString) {
        text.append(Take().text);
      }
      node->constant = Value::Literal(text);
      return node;
    }
    case TokenType::kInteger:
    case TokenType::kFloat: {
      Node node = Make(ExpressionKind::kConstant, token.line);
      const Token number = Take();
      node->constant = number.type == TokenType::kInteger ? Value::Integer(number.integer)
                                                          : Value::Float(number.real);
      return node;
    }
    default: break;
  }
  if (SkipOperator("(")) {
    JINJA_ASSIGN_OR_RETURN(Node node, ParseTuple(true, "", true));
    JINJA_RETURN_IF_ERROR(ExpectOperator(")"));
    return node;
  }
  if (token.IsOperator("[")) {
    return ParseListLiteral();
  }
  if (token.IsOperator("{")) {
    return ParseDictLiteral();
  }
  return Unexpected();
}

ExpressionParser::Result ExpressionParser::ParseNameOrConstant() {
  const Token token = Take();
  Node node = Make(ExpressionKind::kConstant, token.line);
  if (token.text == "true" || token.text == "True" || token.text == "false" ||
      token.text == "False") {
    node->constant = Value::Bool(token.text == "true" || token.text == "True");
  } else if (token.text != "none" && token.text != "None") {
    node->kind = ExpressionKind::kName;
    node->name = token.text;
    node->name_id = Intern(token.text);
    ++uses_[static_cast<size_t>(node->name_id)];
  }
  return node;
}

ExpressionParser::Result ExpressionParser::ParseListLiteral() {
  Node list = Make(ExpressionKind::kList, Take().line);
  while (!current().IsOperator("]")) {
    JINJA_ASSIGN_OR_RETURN(Node item, ParseConditional());
    Add(*list, std::move(item));
    if (!current().IsOperator("]")) {
      JINJA_RETURN_IF_ERROR(ExpectOperator(","));
    }
  }
  Take();
  return Checked(std::move(list));
}

ExpressionParser::Result ExpressionParser::ParseDictLiteral() {
  Node dict = Make(ExpressionKind::kDict, Take().line);
  while (!current().IsOperator("}")) {
    JINJA_ASSIGN_OR_RETURN(Node key, ParseConditional());
    JINJA_RETURN_IF_ERROR(ExpectOperator(":"));
    JINJA_ASSIGN_OR_RETURN(Node value, ParseConditional());
    Add(*dict, std::move(key));
    Add(*dict, std::move(value));
    if (!current().IsOperator("}")) {
      JINJA_RETURN_IF_ERROR(ExpectOperator(","));
    }
  }
  Take();
  return Checked(std::move(dict));
}

ExpressionParser::Result ExpressionParser::ParsePostfix(Node node) {
  while (true) {
    if (current().IsOperator(".")) {
      JINJA_ASSIGN_OR_RETURN(node, ParseDot(std::move(node)));
    } else if (current().IsOperator("[")) {
      JINJA_ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
    } else if (current().IsOperator("(")) {
      JINJA_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

ExpressionParser::Result ExpressionParser::ParseDot(Node node) {
  const int line = Take().line;
  const Token part = Take();
  const bool index = part.type == TokenType::kInteger;
  if (!index && part.type != TokenType::kName) {
    return SyntaxError(part.line, "expected a name or a number behind the dot");
  }
  Node access = Make(index ? ExpressionKind::kItem : ExpressionKind::kAttribute, line);
  Add(*access, std::move(node));
  if (index) {
    Node key = Make(ExpressionKind::kConstant, line);
    key->constant = Value::Integer(part.integer);
    Add(*access, std::move(key));
  }
  access->name = part.text;
  return Checked(std::move(access));
}

ExpressionParser::Result ExpressionParser::ParseSubscript(Node node) {
  const int line = Take().line;
  Node key = Make(ExpressionKind::kTuple, line);
  bool is_slice = false;
  while (!current().IsOperator("]")) {
    if (!key->operands.empty()) {
      JINJA_RETURN_IF_ERROR(ExpectOperator(","));
    }
    bool part_is_slice = false;
    JINJA_ASSIGN_OR_RETURN(Node part, ParseSubscripted(nullptr, part_is_slice));
    is_slice = is_slice || part_is_slice;
    Add(*key, std::move(part));
  }
  Take();
  if (is_slice && key->operands.size() > 1) {
    return SyntaxError(line, "slices with several parts are not supported");
  }
  if (key->operands.size() == 1) {
    key = Node(std::move(key->operands[0]));
  }
  if (is_slice) {
    key->operands[0] = std::move(node);
    key->height = std::max(key->height, key->operands[0]->height + 1);
    return Checked(std::move(key));
  }
  Node item = Make(ExpressionKind::kItem, line);
  Add(*item, std::move(node));
  Add(*item, std::move(key));
  return Checked(std::move(item));
}

// One key, or start:stop:step as a slice of `node`.
ExpressionParser::Result ExpressionParser::ParseSubscripted(Node node, bool& is_slice) {
  Node start;
  if (!current().IsOperator(":")) {
    JINJA_ASSIGN_OR_RETURN(start, ParseConditional());
  }
  if (!current().IsOperator(":")) {
    return start;
  }
  is_slice = true;
  Node slice = Make(ExpressionKind::kSlice, Take().line);
  const auto absent = [this] {
    return current().IsOperator(":") || current().IsOperator("]") || current().IsOperator(",");
  };
  Node stop;
  Node step;
  if (!absent()) {
    JINJA_ASSIGN_OR_RETURN(stop, ParseConditional());
  }
  if (SkipOperator(":") && !absent()) {
    JINJA_ASSIGN_OR_RETURN(step, ParseConditional());
  }
  Add(*slice, std::move(node));
  Add(*slice, std::move(start));
  Add(*slice, std::move(stop));
  Add(*slice, std::move(step));
  return slice;
}

ExpressionParser::Result ExpressionParser::ParseCall(Node node) {
  Node call = Make(ExpressionKind::kCall, current().line);
  if (node->kind == ExpressionKind::kAttribute && IsUnsupportedMethod(node->name)) {
    return SyntaxError(call->line, StrCat("the method ", node->name, "() is not supported"));
  }
  JINJA_RETURN_IF_ERROR(ParseArguments(call->call));
  AddArguments(*call);
  Add(*call, std::move(node));
  return Checked(std::move(call));
}

ExpressionParser::Result ExpressionParser::ParseFiltersAndTests(Node node) {
  while (true) {
    if (current().IsOperator("|")) {
      JINJA_ASSIGN_OR_RETURN(node, ParseFilters(std::move(node), false));
    } else if (current().IsName("is")) {
      JINJA_ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (current().IsOperator("(")) {
      JINJA_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

ExpressionParser::Result ExpressionParser::ParseFilters(Node operand, bool started) {
  Node node = std::move(operand);
  while (started || SkipOperator("|")) {
    started = false;
    Node filter = Make(ExpressionKind::kFilter, current().line);
    JINJA_ASSIGN_OR_RETURN(filter->name, ExpectName());
    filter->filter = FindFilter(filter->name);
    if (filter->filter == nullptr) {
      NoteUnknown("filter", filter->name, filter->line);
    }
    if (current().IsOperator("(")) {
      JINJA_RETURN_IF_ERROR(ParseArguments(filter->call));
    }
    CheckNamedFilterOrTest(*filter);
    AddArguments(*filter);
    Add(*filter, std::move(node));
    JINJA_ASSIGN_OR_RETURN(node, Checked(std::move(filter)));
  }
  return node;
}

void ExpressionParser::NoteUnknown(std::string_view kind, const std::string& name, int line) {
  unknown_names_.push_back(SyntaxError(line, StrCat("no ", kind, " named '", name, "'")));
}

// map, select and their kin name a filter or test; where they do so literally it is looked up now.
void ExpressionParser::CheckNamedFilterOrTest(const Expression& filter) {
  const bool by_attribute = filter.name == "selectattr" || filter.name == "rejectattr";
  const bool test = by_attribute || filter.name == "select" || filter.name == "reject";
  const size_t position = by_attribute ? 1 : 0;
  if ((!test && filter.name != "map") || filter.call.positional.size() <= position) {
    return;
  }
  const Expression& named = *filter.call.positional[position];
  if (named.kind != ExpressionKind::kConstant || !named.constant.is_string()) {
    return;
  }
  const std::string& name = named.constant.bytes();
  const bool found = test ? FindPredicate(name) != nullptr : FindFilter(name) != nullptr;
  if (!found) {
    NoteUnknown(test ? "test" : "filter", name, named.line);
  }
}

ExpressionParser::Result ExpressionParser::ParseTest(Node node) {
  const int line = Take().line;
  const bool negated = SkipName("not");
  Node test = Make(ExpressionKind::kTest, line);
  JINJA_ASSIGN_OR_RETURN(test->name, ExpectName());
  test->predicate = FindPredicate(test->name);
  if (test->predicate == nullptr) {
    NoteUnknown("test", test->name, line);
  }
  JINJA_RETURN_IF_ERROR(ParseTestArguments(*test));
  AddArguments(*test);
  Add(*test, std::move(node));
  if (!negated) {
    return Checked(std::move(test));
  }
  Node negation = Make(ExpressionKind::kNot, line);
  Add(*negation, std::move(test));
  return Checked(std::move(negation));
}

// In parentheses, or one operand without: x is divisibleby 3.
absl::Status ExpressionParser::ParseTestArguments(Expression& test) {
  if (current().IsOperator("(")) {
    return ParseArguments(test.call);
  }
  const Token& token = current();
  const bool literal = token.type == TokenType::kString || token.type == TokenType::kInteger ||
                       token.type == TokenType::kFloat || token.IsOperator("[") ||
                       token.IsOperator("{");
  const bool name = token.type == TokenType::kName && token.text != "else" && token.text != "or" &&
                    token.text != "and";
  if (!literal && !name) {
    return absl::OkStatus();
  }
  if (token.IsName("is")) {
    return SyntaxError(token.line, "tests cannot be chained with is");
  }
  JINJA_ASSIGN_OR_RETURN(Node operand, ParsePrimary());
  JINJA_ASSIGN_OR_RETURN(operand, ParsePostfix(std::move(operand)));
  test.call.positional.push_back(std::move(operand));
  return absl::OkStatus();
}

absl::Status ExpressionParser::ParseArguments(CallArguments& call) {
  const int line = Take().line;
  bool first = true;
  while (!current().IsOperator(")")) {
    if (!first) {
      JINJA_RETURN_IF_ERROR(ExpectOperator(","));
      if (current().IsOperator(")")) {
        break;
      }
    }
    first = false;
    JINJA_RETURN_IF_ERROR(ParseArgument(call, line));
  }
  Take();
  return absl::OkStatus();
}

absl::Status ExpressionParser::ParseArgument(CallArguments& call, int line) {
  const auto misplaced = [line] { return SyntaxError(line, "invalid order of call arguments"); };
  if (SkipOperator("*")) {
    JINJA_ASSIGN_OR_RETURN(Node list, ParseConditional());
    const bool ordered = call.all_positional == nullptr && call.all_keyword == nullptr;
    call.all_positional = std::move(list);
    return ordered ? absl::OkStatus() : misplaced();
  }
  if (SkipOperator("**")) {
    JINJA_ASSIGN_OR_RETURN(Node dict, ParseConditional());
    const bool ordered = call.all_keyword == nullptr;
    call.all_keyword = std::move(dict);
    return ordered ? absl::OkStatus() : misplaced();
  }
  if (current().type == TokenType::kName && next().IsOperator("=")) {
    std::string name = Take().text;
    Take();
    JINJA_ASSIGN_OR_RETURN(Node value, ParseConditional());
    for (const auto& keyword : call.keyword) {
      if (keyword.first == name) {
        return SyntaxError(line, StrCat("the argument '", name, "' is given twice"));
      }
    }
    call.keyword.emplace_back(std::move(name), std::move(value));
    return call.all_keyword == nullptr ? absl::OkStatus() : misplaced();
  }
  JINJA_ASSIGN_OR_RETURN(Node value, ParseConditional());
  call.positional.push_back(std::move(value));
  return call.all_positional == nullptr && call.all_keyword == nullptr && call.keyword.empty()
             ? absl::OkStatus()
             : misplaced();
}

}  // namespace tessera::coordinator::jinja
