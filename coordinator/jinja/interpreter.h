// Runs a parsed template: statements write to the output, expressions become values.
//
// One Interpreter serves one rendering on one thread. It borrows the template and the runtime.
// Variables live in frames (loop bodies, macros, with and filter blocks have their own); a macro
// keeps the frames around its definition alive until the rendering ends. Statements are in
// interpreter.cc, expressions in evaluator.cc.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/jinja/ast.h"
#include "coordinator/jinja/loop.h"
#include "coordinator/jinja/values/runtime.h"
#include "coordinator/jinja/values/text.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

class Interpreter {
 public:
  Interpreter(const Template& parsed, Runtime& runtime);

  // The text with `context`'s entries as variables. An error ends with the line it arose on.
  absl::StatusOr<Text> Render(const Dict& context);

 private:
  friend class Macro;

  struct Frame {
    Frame* parent = nullptr;
    absl::InlinedVector<std::pair<NameId, Value>, 4> variables;
    bool captured = false;  // a macro or a recursive loop sees it: it outlives its block
  };
  enum class Flow { kNext, kBreak, kContinue };
  class FrameScope;
  class OutputScope;

  absl::StatusOr<Flow> Run(const Body& body);
  absl::StatusOr<Flow> RunStatement(const Statement& statement);
  absl::StatusOr<Flow> RunIf(const Statement& statement);
  absl::StatusOr<Flow> RunFor(const Statement& statement);
  // Runs a for statement over `iterable`, within `depth0` calls of its loop.
  absl::StatusOr<Flow> RunLoop(const Statement& statement, const Value& iterable, Int depth0);
  absl::StatusOr<Value> CallLoop(const Statement& statement, Frame* closure, const Value& iterable,
                                 Int depth0);
  absl::StatusOr<Flow> RunLoopBody(const Statement& statement, Loop& loop);
  absl::StatusOr<Flow> RunSetBlock(const Statement& statement);
  absl::StatusOr<Flow> RunFilterBlock(const Statement& statement);
  absl::StatusOr<Flow> RunWith(const Statement& statement);
  absl::StatusOr<Flow> RunGeneration(const Statement& statement);
  absl::Status RunOutput(const Statement& statement);
  absl::Status RunSet(const Statement& statement);
  absl::Status RunMacro(const Statement& statement);
  absl::Status RunCallBlock(const Statement& statement);
  // Runs a body in a frame of its own with its output in `captured`.
  absl::StatusOr<Flow> Capture(const Body& body, Text& captured);
  absl::Status Write(const Text& text);

  absl::Status Assign(const Target& target, const Value& value);
  void SetVariable(NameId name, Value value);
  const Value& Lookup(NameId name) const;
  Frame* NewFrame(Frame* parent);
  // Lets the frames from here outwards live until the rendering ends.
  absl::Status KeepFrames();
  absl::StatusOr<Value> NewMacro(const MacroDefinition& definition);
  absl::StatusOr<Value> CallMacro(const MacroDefinition& definition, Frame* closure,
                                  const Arguments& arguments);
  absl::Status BindParameters(const MacroDefinition& definition, const Arguments& arguments);
  absl::Status BindSpecial(const MacroDefinition& definition, Arguments rest, size_t used);

  absl::StatusOr<Value> Evaluate(const Expression& expression);
  absl::StatusOr<Value> EvaluateKind(const Expression& expression);
  absl::StatusOr<std::vector<Value>> EvaluateAll(const std::vector<ExpressionPtr>& expressions);
  absl::StatusOr<Value> EvaluateOptional(const ExpressionPtr& expression);
  absl::StatusOr<Value> EvaluateDict(const Expression& expression);
  absl::StatusOr<Value> EvaluateItem(const Expression& expression);
  absl::StatusOr<Value> EvaluateSlice(const Expression& expression);
  absl::StatusOr<Value> EvaluateCall(const Expression& expression, const Value* caller);
  // Applies the filters around `innermost`, the value at the end of their chain where it is null.
  absl::StatusOr<Value> EvaluateFilters(const Expression& expression, const Value& innermost);
  absl::StatusOr<Value> EvaluateTest(const Expression& expression);
  absl::StatusOr<Value> EvaluateBinary(const Expression& expression);
  absl::StatusOr<Value> EvaluateConcatenation(const Expression& expression);
  absl::StatusOr<Value> EvaluateLogic(const Expression& expression);
  absl::StatusOr<Value> EvaluateCompare(const Expression& expression);
  absl::StatusOr<bool> EvaluateComparison(Comparison comparison, const Value& left,
                                          const Value& right);
  absl::StatusOr<Value> EvaluateConditional(const Expression& expression);
  absl::StatusOr<Arguments> EvaluateArguments(const CallArguments& call);
  absl::Status AddKeyword(Arguments& arguments, const std::string& name, Value value);

  const Template& template_;
  Runtime& runtime_;
  std::vector<Value> base_;  // by NameId: the context's and the functions
  std::vector<std::unique_ptr<Frame>> frames_;
  Frame* frame_ = nullptr;
  Text* output_ = nullptr;
  int error_line_ = 0;  // of the innermost expression or statement that failed
};

}  // namespace tessera::coordinator::jinja
