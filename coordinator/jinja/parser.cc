#include "coordinator/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "coordinator/jinja/expression_parser.h"
#include "coordinator/jinja/lexer.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/unicode.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

using StatementPtr = std::unique_ptr<Statement>;
using EndNames = std::initializer_list<std::string_view>;

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : expressions_(std::move(tokens)) {}

  absl::StatusOr<std::shared_ptr<const Template>> Parse() {
    auto parsed = std::make_shared<Template>();
    JINJA_RETURN_IF_ERROR(ParseItems({}, 1, parsed->body).status());
    JINJA_RETURN_IF_ERROR(expressions_.UnknownNamesStatus());
    parsed->names = expressions_.TakeNames();
    return std::shared_ptr<const Template>(std::move(parsed));
  }

 private:
  const Token& current() const { return expressions_.current(); }

  static StatementPtr Make(StatementKind kind, int line) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = line;
    return statement;
  }

  absl::Status ParseExpressionInto(Statement& statement) {
    JINJA_ASSIGN_OR_RETURN(auto expression, expressions_.ParseExpression());
    statement.expressions.push_back(std::move(expression));
    return absl::OkStatus();
  }

  // Text and tags until one of the end tags (whose name is taken and returned) or the template's
  // end.
  // `line` is the opening tag's.
  absl::StatusOr<std::string> ParseItems(EndNames ends, int line, Body& body) {
    while (current().type != TokenType::kEnd) {
      const Token token = expressions_.Take();
      if (token.type == TokenType::kData) {
        StatementPtr text = Make(StatementKind::kText, token.line);
        text->text = token.text;
        body.push_back(std::move(text));
        continue;
      }
      if (token.type == TokenType::kVariableBegin) {
        StatementPtr output = Make(StatementKind::kOutput, token.line);
        JINJA_ASSIGN_OR_RETURN(auto expression, expressions_.ParseTuple());
        output->expressions.push_back(std::move(expression));
        body.push_back(std::move(output));
        JINJA_RETURN_IF_ERROR(expressions_.Expect(TokenType::kVariableEnd, "}}"));
        continue;
      }
      for (const std::string_view end : ends) {
        if (expressions_.SkipName(end)) {
          return std::string(end);
        }
      }
      JINJA_ASSIGN_OR_RETURN(StatementPtr statement, ParseStatement());
      body.push_back(std::move(statement));
      JINJA_RETURN_IF_ERROR(expressions_.Expect(TokenType::kBlockEnd, "%}"));
    }
    if (ends.size() != 0) {
      return SyntaxError(line, StrCat("the block is not closed: expected {% ", *(ends.end() - 1),
                                      " %} before the end of the template"));
    }
    return std::string();
  }

  // The rest of a tag's end, then its body up to one of the end tags.
  absl::StatusOr<std::string> ParseBody(EndNames ends, Body& body) {
    const int line = current().line;
    expressions_.SkipOperator(":");
    JINJA_RETURN_IF_ERROR(expressions_.Expect(TokenType::kBlockEnd, "%}"));
    if (++depth_ > kMaxStatementDepth) {
      return SyntaxError(current().line,
                         StrCat("blocks nest deeper than the limit of ", kMaxStatementDepth));
    }
    JINJA_ASSIGN_OR_RETURN(std::string end, ParseItems(ends, line, body));
    --depth_;
    return end;
  }

  // A body that runs as a function: loops around it cannot be left from inside.
  absl::Status ParseFunctionBody(std::string_view end, Body& body) {
    const int loops = std::exchange(loops_, 0);
    JINJA_RETURN_IF_ERROR(ParseBody({end}, body).status());
    loops_ = loops;
    return absl::OkStatus();
  }

  absl::StatusOr<StatementPtr> ParseStatement() {
    if (current().type != TokenType::kName) {
      return expressions_.Unexpected("a tag's name");
    }
    const Token tag = expressions_.Take();
    if (tag.text == "if") return ParseIf(tag.line);
    if (tag.text == "for") return ParseFor(tag.line);
    if (tag.text == "set") return ParseSet(tag.line);
    if (tag.text == "macro") return ParseMacro(tag.line);
    if (tag.text == "call") return ParseCallBlock(tag.line);
    if (tag.text == "filter") return ParseFilterBlock(tag.line);
    if (tag.text == "with") return ParseWith(tag.line);
    if (tag.text == "print") return ParsePrint(tag.line);
    if (tag.text == "generation") return ParseGeneration(tag.line);
    if (tag.text == "break" || tag.text == "continue") {
      if (loops_ == 0) {
        return SyntaxError(tag.line, StrCat("'", tag.text, "' outside of a loop"));
      }
      return Make(tag.text == "break" ? StatementKind::kBreak : StatementKind::kContinue, tag.line);
    }
    if (tag.text.starts_with("end") || tag.text == "else" || tag.text == "elif") {
      return SyntaxError(tag.line, StrCat("{% ", tag.text, " %} does not fit an open block"));
    }
    return SyntaxError(tag.line, StrCat("the tag {% ", tag.text, " %} is not supported"));
  }

  absl::StatusOr<StatementPtr> ParseIf(int line) {
    StatementPtr statement = Make(StatementKind::kIf, line);
    const size_t unknown_names = expressions_.UnknownNames();
    std::string end = "elif";
    while (end == "elif") {
      Branch branch;
      JINJA_ASSIGN_OR_RETURN(branch.condition, expressions_.ParseTuple(false));
      JINJA_ASSIGN_OR_RETURN(end, ParseBody({"elif", "else", "endif"}, branch.body));
      statement->branches.push_back(std::move(branch));
    }
    if (end == "else") {
      Branch branch;
      JINJA_RETURN_IF_ERROR(ParseBody({"endif"}, branch.body).status());
      statement->branches.push_back(std::move(branch));
    }
    expressions_.ForgiveUnknownNames(unknown_names);
    return statement;
  }

  absl::StatusOr<StatementPtr> ParseFor(int line) {
    StatementPtr statement = Make(StatementKind::kFor, line);
    const int loop_uses = expressions_.Uses(kLoopName);
    ++loops_;
    JINJA_ASSIGN_OR_RETURN(Target target, ParseTarget("in", false));
    statement->targets.push_back(std::move(target));
    if (!expressions_.SkipName("in")) {
      return expressions_.Unexpected("'in'");
    }
    JINJA_ASSIGN_OR_RETURN(auto items, expressions_.ParseTuple(false, "recursive"));
    statement->expressions.push_back(std::move(items));
    if (expressions_.SkipName("if")) {
      JINJA_ASSIGN_OR_RETURN(statement->condition, expressions_.ParseExpression());
    }
    statement->recursive = expressions_.SkipName("recursive");
    std::string end;
    JINJA_ASSIGN_OR_RETURN(end, ParseBody({"else", "endfor"}, statement->body));
    --loops_;
    if (end == "else") {
      JINJA_RETURN_IF_ERROR(ParseBody({"endfor"}, statement->else_body).status());
    }
    statement->uses_loop = statement->recursive || expressions_.Uses(kLoopName) != loop_uses;
    return statement;
  }

  // name | name.attribute | (targets), with commas between as a tuple.
  absl::StatusOr<Target> ParseTarget(std::string_view end_name, bool with_attributes) {
    Target tuple;
    tuple.kind = Target::Kind::kTuple;
    tuple.line = current().line;
    bool is_tuple = false;
    while (!(is_tuple && (current().IsName(end_name) || current().IsOperator(")")))) {
      JINJA_ASSIGN_OR_RETURN(Target item, ParseTargetItem(with_attributes));
      tuple.items.push_back(std::move(item));
      if (!expressions_.SkipOperator(",")) {
        break;
      }
      is_tuple = true;
    }
    if (is_tuple) {
      return tuple;
    }
    return Target(std::move(tuple.items.front()));
  }

  absl::StatusOr<Target> ParseTargetItem(bool with_attributes) {
    const int line = current().line;
    if (expressions_.SkipOperator("(")) {
      if (++depth_ > kMaxStatementDepth) {
        return SyntaxError(line, "the targets nest too deeply");
      }
      JINJA_ASSIGN_OR_RETURN(Target inner, ParseTarget(")", false));
      JINJA_RETURN_IF_ERROR(expressions_.ExpectOperator(")"));
      --depth_;
      return inner;
    }
    Target target;
    target.line = line;
    JINJA_ASSIGN_OR_RETURN(const std::string name, expressions_.ExpectName());
    constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
    const bool constant =
        std::find(std::begin(kConstants), std::end(kConstants), name) != std::end(kConstants);
    if (constant || (name == "loop" && loops_ > 0)) {
      return SyntaxError(line, StrCat("cannot assign to '", name, "'"));
    }
    target.name_id = expressions_.Intern(name);
    if (with_attributes && expressions_.SkipOperator(".")) {
      target.kind = Target::Kind::kNamespaceAttribute;
      JINJA_ASSIGN_OR_RETURN(target.attribute, expressions_.ExpectName());
    }
    return target;
  }

  absl::StatusOr<StatementPtr> ParseSet(int line) {
    StatementPtr statement = Make(StatementKind::kSet, line);
    JINJA_ASSIGN_OR_RETURN(Target target, ParseTarget("", true));
    statement->targets.push_back(std::move(target));
    if (expressions_.SkipOperator("=")) {
      JINJA_ASSIGN_OR_RETURN(auto value, expressions_.ParseTuple());
      statement->expressions.push_back(std::move(value));
      return statement;
    }
    statement->kind = StatementKind::kSetBlock;
    JINJA_ASSIGN_OR_RETURN(auto filters, expressions_.ParseFilters(nullptr, false));
    statement->expressions.push_back(std::move(filters));
    JINJA_RETURN_IF_ERROR(ParseBody({"endset"}, statement->body).status());
    return statement;
  }

  absl::Status ParseSignature(MacroDefinition& macro) {
    JINJA_RETURN_IF_ERROR(expressions_.ExpectOperator("("));
    while (!current().IsOperator(")")) {
      if (!macro.parameters.empty()) {
        JINJA_RETURN_IF_ERROR(expressions_.ExpectOperator(","));
      }
      JINJA_ASSIGN_OR_RETURN(const std::string name, expressions_.ExpectName());
      const NameId id = expressions_.Intern(name);
      for (const auto& parameter : macro.parameters) {
        if (parameter.first == id) {
          return SyntaxError(current().line, StrCat("the parameter '", name, "' is named twice"));
        }
      }
      macro.parameters.emplace_back(id, name);
      if (expressions_.SkipOperator("=")) {
        JINJA_ASSIGN_OR_RETURN(auto value, expressions_.ParseExpression());
        macro.defaults.push_back(std::move(value));
      } else if (!macro.defaults.empty()) {
        return SyntaxError(current().line,
                           "a parameter without default follows one with a default");
      }
    }
    expressions_.Take();
    return absl::OkStatus();
  }

  absl::Status ParseMacroBody(std::string_view end, MacroDefinition& macro) {
    const int callers = expressions_.Uses(kCallerName);
    const int varargs = expressions_.Uses(kVarargsName);
    const int kwargs = expressions_.Uses(kKwargsName);
    JINJA_RETURN_IF_ERROR(ParseFunctionBody(end, macro.body));
    const auto has = [&macro](NameId id) {
      return std::any_of(macro.parameters.begin(), macro.parameters.end(),
                         [id](const auto& parameter) { return parameter.first == id; });
    };
    macro.uses_caller = expressions_.Uses(kCallerName) != callers && !has(kCallerName);
    macro.uses_varargs = expressions_.Uses(kVarargsName) != varargs && !has(kVarargsName);
    macro.uses_kwargs = expressions_.Uses(kKwargsName) != kwargs && !has(kKwargsName);
    return absl::OkStatus();
  }

  absl::StatusOr<StatementPtr> ParseMacro(int line) {
    StatementPtr statement = Make(StatementKind::kMacro, line);
    statement->macro = std::make_unique<MacroDefinition>();
    statement->macro->line = line;
    JINJA_ASSIGN_OR_RETURN(statement->macro->name, expressions_.ExpectName());
    statement->name_id = expressions_.Intern(statement->macro->name);
    JINJA_RETURN_IF_ERROR(ParseSignature(*statement->macro));
    JINJA_RETURN_IF_ERROR(ParseMacroBody("endmacro", *statement->macro));
    return statement;
  }

  absl::StatusOr<StatementPtr> ParseCallBlock(int line) {
    StatementPtr statement = Make(StatementKind::kCallBlock, line);
    statement->macro = std::make_unique<MacroDefinition>();
    statement->macro->line = line;
    if (current().IsOperator("(")) {
      JINJA_RETURN_IF_ERROR(ParseSignature(*statement->macro));
    }
    JINJA_RETURN_IF_ERROR(ParseExpressionInto(*statement));
    if (statement->expressions[0]->kind != ExpressionKind::kCall) {
      return SyntaxError(line, "{% call %} needs a call of a macro");
    }
    JINJA_RETURN_IF_ERROR(ParseMacroBody("endcall", *statement->macro));
    return statement;
  }

  absl::StatusOr<StatementPtr> ParseFilterBlock(int line) {
    StatementPtr statement = Make(StatementKind::kFilterBlock, line);
    JINJA_ASSIGN_OR_RETURN(auto filters, expressions_.ParseFilters(nullptr, true));
    statement->expressions.push_back(std::move(filters));
    JINJA_RETURN_IF_ERROR(ParseBody({"endfilter"}, statement->body).status());
    return statement;
  }

  absl::StatusOr<StatementPtr> ParseWith(int line) {
    StatementPtr statement = Make(StatementKind::kWith, line);
    while (current().type != TokenType::kBlockEnd) {
      if (!statement->targets.empty()) {
        JINJA_RETURN_IF_ERROR(expressions_.ExpectOperator(","));
      }
      JINJA_ASSIGN_OR_RETURN(Target target, ParseTarget("", false));
      statement->targets.push_back(std::move(target));
      JINJA_RETURN_IF_ERROR(expressions_.ExpectOperator("="));
      JINJA_RETURN_IF_ERROR(ParseExpressionInto(*statement));
    }
    JINJA_RETURN_IF_ERROR(ParseBody({"endwith"}, statement->body).status());
    return statement;
  }

  absl::StatusOr<StatementPtr> ParsePrint(int line) {
    StatementPtr statement = Make(StatementKind::kOutput, line);
    while (current().type != TokenType::kBlockEnd) {
      if (!statement->expressions.empty()) {
        JINJA_RETURN_IF_ERROR(expressions_.ExpectOperator(","));
      }
      JINJA_RETURN_IF_ERROR(ParseExpressionInto(*statement));
    }
    return statement;
  }

  absl::StatusOr<StatementPtr> ParseGeneration(int line) {
    StatementPtr statement = Make(StatementKind::kGeneration, line);
    JINJA_RETURN_IF_ERROR(ParseFunctionBody("endgeneration", statement->body));
    return statement;
  }

  ExpressionParser expressions_;
  int depth_ = 0;  // of bodies inside each other
  int loops_ = 0;  // around here, within the same function
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Template>> ParseTemplate(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return RenderError(StrCat("the chat template has ", source.size(),
                              " bytes, beyond the limit of ", kMaxTemplateBytes));
  }
  if (FindInvalidUtf8(source) != std::string_view::npos) {
    return RenderError("the chat template is not valid UTF-8");
  }
  JINJA_ASSIGN_OR_RETURN(auto tokens, Tokenize(source));
  return StatementParser(std::move(tokens)).Parse();
}

}  // namespace tessera::coordinator::jinja
