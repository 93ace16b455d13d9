// A parsed template: statements and expressions as trees.
//
// Built by the parser (parser.h), read by the interpreter; immutable in between, so any
// number of threads may render from one. Nesting is bounded by the parser, so recursion over the
// trees is safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/jinja/filters.h"
#include "coordinator/jinja/predicates.h"
#include "coordinator/jinja/values/operators.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

// Variables are numbered in order of appearance; Template::names spells them.
using NameId = int;

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<std::unique_ptr<Statement>>;

enum class ExpressionKind : uint8_t {
  kConstant,     // constant
  kName,         // name_id
  kList,         // operands
  kTuple,        // operands
  kDict,         // operands: key, value, key, value, ...
  kAttribute,    // operands[0].name
  kItem,         // operands[0][operands[1]]
  kSlice,        // operands[0][operands[1]:operands[2]:operands[3]], each end may be null
  kCall,         // operands[0](call)
  kFilter,       // operands[0] | filter(call); the operand is null in a filter block
  kTest,         // operands[0] is predicate(call)
  kNot,          // not operands[0]
  kNegate,       // -operands[0]
  kPlus,         // +operands[0]
  kBinary,       // operands[0] op operands[1]
  kConcatenate,  // operands[0] ~ operands[1] ~ ...
  kAnd,          // operands[0] and operands[1]
  kOr,           // operands[0] or operands[1]
  kCompare,      // operands[0] comparisons[0] operands[1] comparisons[1] operands[2] ...
  kConditional,  // operands[1] if operands[0] else operands[2], which may be null
};

enum class Comparison : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kIn,
  kNotIn,
};

// The arguments of a call, filter or test.
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> keyword;
  ExpressionPtr all_positional;  // *these; null if none
  ExpressionPtr all_keyword;     // **these; null if none
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  int line = 0;
  int height = 1;  // of the tree below and with this
  Value constant;
  NameId name_id = -1;
  std::string name;  // of an attribute, filter or test
  std::vector<ExpressionPtr> operands;
  CallArguments call;
  Filter filter = nullptr;        // null behind an `if` where there is none: fails when reached
  Predicate predicate = nullptr;  // likewise
  Operator op = Operator::kAdd;
  std::vector<Comparison> comparisons;
};

// What a value is assigned to.
struct Target {
  enum class Kind : uint8_t { kName, kNamespaceAttribute, kTuple };
  Kind kind = Kind::kName;
  int line = 0;
  NameId name_id = -1;
  std::string attribute;
  std::vector<Target> items;
};

struct MacroDefinition {
  std::string name;  // empty for a call block's
  int line = 0;
  std::vector<std::pair<NameId, std::string>> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
  Body body;
};

enum class StatementKind : uint8_t {
  kText,         // text
  kOutput,       // expressions, printed in turn
  kIf,           // branches; a null condition is else
  kFor,          // target in expressions[0] if condition: body, else_body
  kSet,          // target = expressions[0]
  kSetBlock,     // target = body, through the filters of expressions[0] unless that is null
  kMacro,        // macro as name_id
  kCallBlock,    // expressions[0] (a call) with macro as its caller
  kFilterBlock,  // expressions[0] (filters) over body
  kWith,         // targets = expressions, then body, in a scope
  kGeneration,   // body in a scope
  kBreak,
  kContinue,
};

struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  std::string text;
  NameId name_id = -1;
  std::vector<ExpressionPtr> expressions;
  std::vector<Target> targets;
  std::vector<Branch> branches;
  ExpressionPtr condition;
  Body body;
  Body else_body;
  bool uses_loop = false;  // kFor: something in it says `loop`
  bool recursive = false;  // kFor: loop(items) runs it again
  std::unique_ptr<MacroDefinition> macro;
};

struct Template {
  Body body;
  std::vector<std::string> names;  // by NameId
};

// Names with a meaning of their own, which every template numbers first.
inline constexpr NameId kLoopName = 0;
inline constexpr NameId kCallerName = 1;
inline constexpr NameId kVarargsName = 2;
inline constexpr NameId kKwargsName = 3;

}  // namespace tessera::coordinator::jinja
