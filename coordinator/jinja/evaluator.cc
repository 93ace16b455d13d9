// The interpreter's expressions.

#include <string>

#include "coordinator/jinja/interpreter.h"
#include "coordinator/jinja/values/access.h"
#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/methods.h"
#include "coordinator/jinja/values/operators.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {

absl::StatusOr<Value> Interpreter::Evaluate(const Expression& expression) {
  if (expression.kind == ExpressionKind::kConstant) {
    return expression.constant;
  }
  const Runtime::Level level(runtime_);
  absl::Status status = level.ok() ? runtime_.Step() : Runtime::TooDeep();
  absl::StatusOr<Value> value = status.ok() ? EvaluateKind(expression) : status;
  if (!value.ok() && error_line_ == 0) {
    error_line_ = expression.line;
  }
  return value;
}

absl::StatusOr<Value> Interpreter::EvaluateKind(const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::kConstant: return expression.constant;
    case ExpressionKind::kName: return Lookup(expression.name_id);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple: {
      JINJA_ASSIGN_OR_RETURN(auto items, EvaluateAll(expression.operands));
      return expression.kind == ExpressionKind::kList ? runtime_.NewList(std::move(items))
                                                      : runtime_.NewTuple(std::move(items));
    }
    case ExpressionKind::kDict: return EvaluateDict(expression);
    case ExpressionKind::kAttribute: {
      JINJA_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0]));
      return GetAttribute(runtime_, value, expression.name);
    }
    case ExpressionKind::kItem: return EvaluateItem(expression);
    case ExpressionKind::kSlice: return EvaluateSlice(expression);
    case ExpressionKind::kCall: return EvaluateCall(expression, nullptr);
    case ExpressionKind::kFilter: return EvaluateFilters(expression, Value::None());
    case ExpressionKind::kTest: return EvaluateTest(expression);
    case ExpressionKind::kNot:
    case ExpressionKind::kNegate:
    case ExpressionKind::kPlus: {
      JINJA_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0]));
      return expression.kind == ExpressionKind::kNot      ? Value::Bool(!value.Truthy())
             : expression.kind == ExpressionKind::kNegate ? Negate(value)
                                                          : Plus(value);
    }
    case ExpressionKind::kBinary: return EvaluateBinary(expression);
    case ExpressionKind::kConcatenate: return EvaluateConcatenation(expression);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr: return EvaluateLogic(expression);
    case ExpressionKind::kCompare: return EvaluateCompare(expression);
    case ExpressionKind::kConditional: return EvaluateConditional(expression);
  }
  return Value::None();
}

absl::StatusOr<std::vector<Value>> Interpreter::EvaluateAll(
    const std::vector<ExpressionPtr>& expressions) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const auto& expression : expressions) {
    JINJA_ASSIGN_OR_RETURN(Value value, Evaluate(*expression));
    values.push_back(std::move(value));
  }
  return values;
}

absl::StatusOr<Value> Interpreter::EvaluateOptional(const ExpressionPtr& expression) {
  return expression == nullptr ? absl::StatusOr<Value>(Value::None()) : Evaluate(*expression);
}

absl::StatusOr<Value> Interpreter::EvaluateDict(const Expression& expression) {
  Dict dict;
  for (size_t i = 0; i < expression.operands.size(); i += 2) {
    JINJA_ASSIGN_OR_RETURN(const Value key, Evaluate(*expression.operands[i]));
    JINJA_ASSIGN_OR_RETURN(Value value, Evaluate(*expression.operands[i + 1]));
    JINJA_RETURN_IF_ERROR(CheckHashable(runtime_, key));
    dict.Set(key, std::move(value));
  }
  return runtime_.NewDict(std::move(dict));
}

absl::StatusOr<Value> Interpreter::EvaluateItem(const Expression& expression) {
  JINJA_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0]));
  JINJA_ASSIGN_OR_RETURN(const Value key, Evaluate(*expression.operands[1]));
  return GetItem(runtime_, value, key);
}

absl::StatusOr<Value> Interpreter::EvaluateSlice(const Expression& expression) {
  JINJA_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0]));
  JINJA_ASSIGN_OR_RETURN(const Value start, EvaluateOptional(expression.operands[1]));
  JINJA_ASSIGN_OR_RETURN(const Value stop, EvaluateOptional(expression.operands[2]));
  JINJA_ASSIGN_OR_RETURN(const Value step, EvaluateOptional(expression.operands[3]));
  return GetSlice(runtime_, value, start, stop, step);
}

absl::Status Interpreter::AddKeyword(Arguments& arguments, const std::string& name, Value value) {
  for (const auto& keyword : arguments.keyword) {
    if (keyword.first == name) {
      return RenderError(StrCat("got multiple values for keyword argument '", name, "'"));
    }
  }
  arguments.keyword.emplace_back(name, std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<Arguments> Interpreter::EvaluateArguments(const CallArguments& call) {
  Arguments arguments;
  JINJA_ASSIGN_OR_RETURN(arguments.positional, EvaluateAll(call.positional));
  if (call.all_positional != nullptr) {
    JINJA_ASSIGN_OR_RETURN(const Value list, Evaluate(*call.all_positional));
    JINJA_ASSIGN_OR_RETURN(const auto items, ToItems(runtime_, list));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  for (const auto& [name, expression] : call.keyword) {
    JINJA_ASSIGN_OR_RETURN(Value value, Evaluate(*expression));
    arguments.keyword.emplace_back(name, std::move(value));
  }
  if (call.all_keyword == nullptr) {
    return arguments;
  }
  JINJA_ASSIGN_OR_RETURN(const Value dict, Evaluate(*call.all_keyword));
  if (!dict.is_dict()) {
    return RenderError(StrCat("argument after ** must be a mapping, not ", dict.TypeName()));
  }
  for (const auto& [key, value] : dict.dict().entries()) {
    // Keywords are searched in order, so many of them are refused rather than slow.
    JINJA_RETURN_IF_ERROR(runtime_.Step(static_cast<int64_t>(arguments.keyword.size()) + 1));
    if (!key.is_string()) {
      return RenderError("keywords must be strings");
    }
    JINJA_RETURN_IF_ERROR(AddKeyword(arguments, key.bytes(), value));
  }
  return arguments;
}

absl::StatusOr<Value> Interpreter::EvaluateCall(const Expression& expression, const Value* caller) {
  const Expression& callee = *expression.operands[0];
  Value called;
  if (callee.kind == ExpressionKind::kAttribute) {
    JINJA_ASSIGN_OR_RETURN(const Value self, Evaluate(*callee.operands[0]));
    // A method is called without making an object of it first.
    if (!self.is_object() && FindMethod(self, callee.name) == MethodKind::kCallable &&
        caller == nullptr) {
      JINJA_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression.call));
      return CallMethod(runtime_, self, callee.name, arguments);
    }
    JINJA_ASSIGN_OR_RETURN(called, GetAttribute(runtime_, self, callee.name));
  } else {
    JINJA_ASSIGN_OR_RETURN(called, Evaluate(callee));
  }
  JINJA_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(expression.call));
  JINJA_RETURN_IF_ERROR(CheckDefined(called));
  if (caller != nullptr) {
    JINJA_RETURN_IF_ERROR(AddKeyword(arguments, "caller", *caller));
  }
  if (!called.is_object()) {
    return RenderError(StrCat("'", called.TypeName(), "' object is not callable"));
  }
  return called.object()->Call(runtime_, arguments);
}

absl::StatusOr<Value> Interpreter::EvaluateFilters(const Expression& expression,
                                                   const Value& innermost) {
  Value input = innermost;
  if (const ExpressionPtr& operand = expression.operands[0]; operand != nullptr) {
    // A chain of filters over a block ends in a null operand, reached through filters only.
    JINJA_ASSIGN_OR_RETURN(input, operand->kind == ExpressionKind::kFilter
                                      ? EvaluateFilters(*operand, innermost)
                                      : Evaluate(*operand));
  }
  const Runtime::Level level(runtime_);
  if (!level.ok()) {
    return Runtime::TooDeep();
  }
  JINJA_RETURN_IF_ERROR(runtime_.Step());
  if (expression.filter == nullptr) {
    return RenderError(StrCat("no filter named '", expression.name, "'"));
  }
  JINJA_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression.call));
  absl::StatusOr<Value> value = expression.filter(runtime_, input, arguments);
  if (!value.ok() && error_line_ == 0) {
    error_line_ = expression.line;
  }
  return value;
}

absl::StatusOr<Value> Interpreter::EvaluateTest(const Expression& expression) {
  JINJA_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0]));
  JINJA_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression.call));
  if (expression.predicate == nullptr) {
    return RenderError(StrCat("no test named '", expression.name, "'"));
  }
  JINJA_ASSIGN_OR_RETURN(const bool holds, expression.predicate(runtime_, value, arguments));
  return Value::Bool(holds);
}

absl::StatusOr<Value> Interpreter::EvaluateBinary(const Expression& expression) {
  JINJA_ASSIGN_OR_RETURN(const Value left, Evaluate(*expression.operands[0]));
  JINJA_ASSIGN_OR_RETURN(const Value right, Evaluate(*expression.operands[1]));
  return Apply(runtime_, expression.op, left, right);
}

absl::StatusOr<Value> Interpreter::EvaluateConcatenation(const Expression& expression) {
  JINJA_ASSIGN_OR_RETURN(const auto values, EvaluateAll(expression.operands));
  Text joined;
  for (const Value& value : values) {
    JINJA_ASSIGN_OR_RETURN(const Text text, ToText(runtime_, value));
    joined.Append(text);
    JINJA_RETURN_IF_ERROR(runtime_.CheckSize(joined.size()));
  }
  return runtime_.NewString(std::move(joined));
}

absl::StatusOr<Value> Interpreter::EvaluateLogic(const Expression& expression) {
  JINJA_ASSIGN_OR_RETURN(Value left, Evaluate(*expression.operands[0]));
  const bool decided = left.Truthy() == (expression.kind == ExpressionKind::kOr);
  return decided ? absl::StatusOr<Value>(std::move(left)) : Evaluate(*expression.operands[1]);
}

absl::StatusOr<bool> Interpreter::EvaluateComparison(Comparison comparison, const Value& left,
                                                     const Value& right) {
  switch (comparison) {
    case Comparison::kEqual: return Equals(runtime_, left, right);
    case Comparison::kIn: return Contains(runtime_, right, left);
    case Comparison::kNotEqual: {
      JINJA_ASSIGN_OR_RETURN(const bool equal, Equals(runtime_, left, right));
      return !equal;
    }
    case Comparison::kNotIn: {
      JINJA_ASSIGN_OR_RETURN(const bool contained, Contains(runtime_, right, left));
      return !contained;
    }
    default: break;
  }
  constexpr std::string_view kSymbols[] = {"==", "!=", "<", "<=", ">", ">="};
  JINJA_ASSIGN_OR_RETURN(const Order order,
                         Compare(runtime_, left, right, kSymbols[static_cast<int>(comparison)]));
  switch (comparison) {
    case Comparison::kLess: return order == Order::kLess;
    case Comparison::kLessOrEqual: return order == Order::kLess || order == Order::kEqual;
    case Comparison::kGreater: return order == Order::kGreater;
    default: return order == Order::kGreater || order == Order::kEqual;
  }
}

absl::StatusOr<Value> Interpreter::EvaluateCompare(const Expression& expression) {
  JINJA_ASSIGN_OR_RETURN(Value left, Evaluate(*expression.operands[0]));
  for (size_t i = 0; i < expression.comparisons.size(); ++i) {
    JINJA_ASSIGN_OR_RETURN(Value right, Evaluate(*expression.operands[i + 1]));
    JINJA_ASSIGN_OR_RETURN(const bool holds,
                           EvaluateComparison(expression.comparisons[i], left, right));
    if (!holds) {
      return Value::Bool(false);
    }
    left = std::move(right);
  }
  return Value::Bool(true);
}

absl::StatusOr<Value> Interpreter::EvaluateConditional(const Expression& expression) {
  JINJA_ASSIGN_OR_RETURN(const Value condition, Evaluate(*expression.operands[0]));
  if (condition.Truthy()) {
    return Evaluate(*expression.operands[1]);
  }
  if (expression.operands[2] != nullptr) {
    return Evaluate(*expression.operands[2]);
  }
  return Value::Undefined(
      "the inline if-expression evaluated to false and no else section was defined");
}

}  // namespace tessera::coordinator::jinja
