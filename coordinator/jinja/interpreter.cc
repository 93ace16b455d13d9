#include "coordinator/jinja/interpreter.h"

#include <algorithm>
#include <string>

#include "coordinator/jinja/globals.h"
#include "coordinator/jinja/values/access.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {

// A frame for as long as a block runs.
class Interpreter::FrameScope {
 public:
  FrameScope(Interpreter& interpreter, Frame* parent)
      : interpreter_(interpreter),
        outer_(interpreter.frame_),
        frame_(interpreter.NewFrame(parent)) {
    interpreter_.frame_ = frame_;
  }
  ~FrameScope() {
    interpreter_.frame_ = outer_;
    if (!frame_->captured && interpreter_.frames_.back().get() == frame_) {
      interpreter_.frames_.pop_back();
    }
  }
  FrameScope(const FrameScope&) = delete;
  FrameScope& operator=(const FrameScope&) = delete;

 private:
  Interpreter& interpreter_;
  Frame* outer_;
  Frame* frame_;
};

// Output goes to `text` for as long as this lives.
class Interpreter::OutputScope {
 public:
  OutputScope(Interpreter& interpreter, Text& text)
      : interpreter_(interpreter), outer_(interpreter.output_) {
    interpreter_.output_ = &text;
  }
  ~OutputScope() { interpreter_.output_ = outer_; }
  OutputScope(const OutputScope&) = delete;
  OutputScope& operator=(const OutputScope&) = delete;

 private:
  Interpreter& interpreter_;
  Text* outer_;
};

class Macro : public Object {
 public:
  Macro(Interpreter& interpreter, const MacroDefinition& definition, Interpreter::Frame* closure)
      : interpreter_(interpreter), definition_(definition), closure_(closure) {}
  std::string_view TypeName() const override { return "Macro"; }
  bool Callable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime&, const Arguments& arguments) override {
    return interpreter_.CallMacro(definition_, closure_, arguments);
  }
  absl::StatusOr<std::optional<Value>> Attribute(Runtime&, std::string_view name) override {
    return name == "name" ? std::optional<Value>(Value::Literal(definition_.name))
                          : std::optional<Value>();
  }
  absl::StatusOr<Text> Repr(Runtime&) override {
    return Text(definition_.name.empty() ? "<Macro anonymous>"
                                         : StrCat("<Macro ", QuoteString(definition_.name), ">"),
                true);
  }

 private:
  Interpreter& interpreter_;
  const MacroDefinition& definition_;
  Interpreter::Frame* closure_;
};

Interpreter::Interpreter(const Template& parsed, Runtime& runtime)
    : template_(parsed), runtime_(runtime) {}

absl::StatusOr<Text> Interpreter::Render(const Dict& context) {
  JINJA_ASSIGN_OR_RETURN(const auto globals, MakeGlobals(runtime_));
  for (const std::string& name : template_.names) {
    const Value* found = context.Find(name);
    const auto global = std::find_if(globals.begin(), globals.end(),
                                     [&name](const auto& entry) { return entry.first == name; });
    base_.push_back(found != nullptr ? *found
                    : global != globals.end()
                        ? global->second
                        : Value::Undefined(StrCat("'", name, "' is undefined")));
  }
  Text out;
  const OutputScope output(*this, out);
  const FrameScope frame(*this, nullptr);
  const absl::StatusOr<Flow> flow = Run(template_.body);
  if (!flow.ok()) {
    return absl::Status(flow.status().code(), StrCat(StdView(flow.status().message()),
                                                     " (chat template line ", error_line_, ")"));
  }
  return out;
}

Interpreter::Frame* Interpreter::NewFrame(Frame* parent) {
  frames_.push_back(std::make_unique<Frame>());
  frames_.back()->parent = parent;
  return frames_.back().get();
}

void Interpreter::SetVariable(NameId name, Value value) {
  for (auto& [id, variable] : frame_->variables) {
    if (id == name) {
      variable = std::move(value);
      return;
    }
  }
  frame_->variables.emplace_back(name, std::move(value));
}

const Value& Interpreter::Lookup(NameId name) const {
  for (const Frame* frame = frame_; frame != nullptr; frame = frame->parent) {
    for (const auto& [id, variable] : frame->variables) {
      if (id == name) {
        return variable;
      }
    }
  }
  return base_[static_cast<size_t>(name)];
}

absl::Status Interpreter::Write(const Text& text) {
  JINJA_RETURN_IF_ERROR(runtime_.CheckSize(output_->size() + text.size()));
  JINJA_RETURN_IF_ERROR(runtime_.Touch(text.size()));
  output_->Append(text);
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const Body& body) {
  for (const auto& statement : body) {
    const Runtime::Level level(runtime_);
    absl::Status status = level.ok() ? runtime_.Step() : Runtime::TooDeep();
    absl::StatusOr<Flow> flow = status.ok() ? RunStatement(*statement) : status;
    if (!flow.ok() && error_line_ == 0) {
      error_line_ = statement->line;
    }
    if (!flow.ok() || *flow != Flow::kNext) {
      return flow;
    }
  }
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunStatement(const Statement& statement) {
  absl::Status status;
  switch (statement.kind) {
    case StatementKind::kText: status = Write(Text(statement.text, true)); break;
    case StatementKind::kOutput: status = RunOutput(statement); break;
    case StatementKind::kSet: status = RunSet(statement); break;
    case StatementKind::kMacro: status = RunMacro(statement); break;
    case StatementKind::kCallBlock: status = RunCallBlock(statement); break;
    case StatementKind::kIf: return RunIf(statement);
    case StatementKind::kFor: return RunFor(statement);
    case StatementKind::kSetBlock: return RunSetBlock(statement);
    case StatementKind::kFilterBlock: return RunFilterBlock(statement);
    case StatementKind::kWith: return RunWith(statement);
    case StatementKind::kGeneration: return RunGeneration(statement);
    case StatementKind::kBreak: return Flow::kBreak;
    case StatementKind::kContinue: return Flow::kContinue;
  }
  if (!status.ok()) {
    return status;
  }
  return Flow::kNext;
}

absl::Status Interpreter::RunOutput(const Statement& statement) {
  for (const auto& expression : statement.expressions) {
    JINJA_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression));
    if (value.is_string()) {
      JINJA_RETURN_IF_ERROR(Write(value.text()));
      continue;
    }
    JINJA_ASSIGN_OR_RETURN(const Text text, ToText(runtime_, value));
    JINJA_RETURN_IF_ERROR(Write(text));
  }
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunIf(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    bool holds = true;
    if (branch.condition != nullptr) {
      JINJA_ASSIGN_OR_RETURN(const Value condition, Evaluate(*branch.condition));
      holds = condition.Truthy();
    }
    if (holds) {
      return Run(branch.body);
    }
  }
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunFor(const Statement& statement) {
  JINJA_ASSIGN_OR_RETURN(const Value iterable, Evaluate(*statement.expressions[0]));
  // A loop that can be called keeps the variables around it, as a macro does.
  if (statement.recursive) JINJA_RETURN_IF_ERROR(KeepFrames());
  return RunLoop(statement, iterable, 0);
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunLoop(const Statement& statement,
                                                       const Value& iterable, Int depth0) {
  LoopItems::Filter filter;
  if (statement.condition != nullptr) {
    filter = [this, &statement, outer = frame_](const Value& item) -> absl::StatusOr<bool> {
      const FrameScope scope(*this, outer);
      JINJA_RETURN_IF_ERROR(Assign(statement.targets[0], item));
      JINJA_ASSIGN_OR_RETURN(const Value condition, Evaluate(*statement.condition));
      return condition.Truthy();
    };
  }
  JINJA_ASSIGN_OR_RETURN(LoopItems items, LoopItems::Make(runtime_, iterable, std::move(filter)));
  // A loop variable that nobody can see need not outlive the loop.
  std::optional<Loop> local;
  Loop* loop = nullptr;
  if (statement.uses_loop) {
    Loop::Recursion recursion;
    if (statement.recursive) {
      recursion = [this, &statement, outer = frame_](const Value& inner, Int depth) {
        return CallLoop(statement, outer, inner, depth);
      };
    }
    JINJA_ASSIGN_OR_RETURN(
        loop, runtime_.NewObject<Loop>(std::move(items), std::move(recursion), depth0));
  } else {
    loop = &local.emplace(std::move(items));
  }
  absl::StatusOr<Flow> flow = RunLoopBody(statement, *loop);
  loop->Close();
  return flow;
}

absl::StatusOr<Value> Interpreter::CallLoop(const Statement& statement, Frame* closure,
                                            const Value& iterable, Int depth0) {
  Text out;
  {
    const FrameScope frame(*this, closure);
    const OutputScope output(*this, out);
    JINJA_RETURN_IF_ERROR(KeepFrames());
    JINJA_RETURN_IF_ERROR(RunLoop(statement, iterable, depth0).status());
  }
  return runtime_.NewString(std::move(out));
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunLoopBody(const Statement& statement, Loop& loop) {
  bool empty = true;
  while (true) {
    JINJA_ASSIGN_OR_RETURN(const bool more, loop.Advance(runtime_));
    if (!more) {
      break;
    }
    empty = false;
    const FrameScope scope(*this, frame_);
    if (statement.uses_loop) {
      SetVariable(kLoopName, Value::FromObject(&loop));
    }
    JINJA_RETURN_IF_ERROR(Assign(statement.targets[0], loop.current()));
    JINJA_ASSIGN_OR_RETURN(const Flow flow, Run(statement.body));
    if (flow == Flow::kBreak) {
      break;
    }
  }
  if (!empty || statement.else_body.empty()) {
    return Flow::kNext;
  }
  const FrameScope scope(*this, frame_);
  return Run(statement.else_body);
}

absl::Status Interpreter::Assign(const Target& target, const Value& value) {
  switch (target.kind) {
    case Target::Kind::kName: SetVariable(target.name_id, value); return absl::OkStatus();
    case Target::Kind::kNamespaceAttribute: {
      const Value& holder = Lookup(target.name_id);
      auto* space = holder.is_object() ? holder.object()->name_space() : nullptr;
      return space != nullptr ? space->Set(runtime_, target.attribute, value)
                              : RenderError("cannot assign attribute on non-namespace object");
    }
    case Target::Kind::kTuple: break;
  }
  JINJA_ASSIGN_OR_RETURN(const auto items, ToItems(runtime_, value));
  if (items.size() != target.items.size()) {
    return RenderError(
        StrCat("cannot unpack ", items.size(), " values into ", target.items.size(), " names"));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    JINJA_RETURN_IF_ERROR(Assign(target.items[i], items[i]));
  }
  return absl::OkStatus();
}

absl::Status Interpreter::RunSet(const Statement& statement) {
  JINJA_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expressions[0]));
  return Assign(statement.targets[0], value);
}

absl::StatusOr<Interpreter::Flow> Interpreter::Capture(const Body& body, Text& captured) {
  const FrameScope frame(*this, frame_);
  const OutputScope output(*this, captured);
  return Run(body);
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunSetBlock(const Statement& statement) {
  Text captured;
  JINJA_ASSIGN_OR_RETURN(const Flow flow, Capture(statement.body, captured));
  if (flow != Flow::kNext) {
    return flow;
  }
  JINJA_ASSIGN_OR_RETURN(Value value, runtime_.NewString(std::move(captured)));
  if (statement.expressions[0] != nullptr) {
    JINJA_ASSIGN_OR_RETURN(value, EvaluateFilters(*statement.expressions[0], value));
  }
  JINJA_RETURN_IF_ERROR(Assign(statement.targets[0], value));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunFilterBlock(const Statement& statement) {
  Text captured;
  JINJA_ASSIGN_OR_RETURN(const Flow flow, Capture(statement.body, captured));
  if (flow != Flow::kNext) {
    return flow;
  }
  JINJA_ASSIGN_OR_RETURN(const Value inner, runtime_.NewString(std::move(captured)));
  JINJA_ASSIGN_OR_RETURN(const Value value, EvaluateFilters(*statement.expressions[0], inner));
  JINJA_ASSIGN_OR_RETURN(const Text text, ToText(runtime_, value));
  JINJA_RETURN_IF_ERROR(Write(text));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunWith(const Statement& statement) {
  // The values are evaluated outside the block's scope.
  JINJA_ASSIGN_OR_RETURN(const auto values, EvaluateAll(statement.expressions));
  const FrameScope scope(*this, frame_);
  for (size_t i = 0; i < values.size(); ++i) {
    JINJA_RETURN_IF_ERROR(Assign(statement.targets[i], values[i]));
  }
  return Run(statement.body);
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunGeneration(const Statement& statement) {
  const FrameScope scope(*this, frame_);
  return Run(statement.body);
}

absl::Status Interpreter::KeepFrames() {
  for (Frame* frame = frame_; frame != nullptr && !frame->captured; frame = frame->parent) {
    JINJA_RETURN_IF_ERROR(runtime_.Touch(sizeof(Frame)));
    frame->captured = true;
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::NewMacro(const MacroDefinition& definition) {
  JINJA_RETURN_IF_ERROR(KeepFrames());
  JINJA_ASSIGN_OR_RETURN(Macro * macro, runtime_.NewObject<Macro>(*this, definition, frame_));
  return Value::FromObject(macro);
}

absl::Status Interpreter::RunMacro(const Statement& statement) {
  JINJA_ASSIGN_OR_RETURN(Value macro, NewMacro(*statement.macro));
  SetVariable(statement.name_id, std::move(macro));
  return absl::OkStatus();
}

absl::Status Interpreter::RunCallBlock(const Statement& statement) {
  JINJA_ASSIGN_OR_RETURN(const Value caller, NewMacro(*statement.macro));
  JINJA_ASSIGN_OR_RETURN(const Value value, EvaluateCall(*statement.expressions[0], &caller));
  JINJA_ASSIGN_OR_RETURN(const Text text, ToText(runtime_, value));
  return Write(text);
}

absl::StatusOr<Value> Interpreter::CallMacro(const MacroDefinition& definition, Frame* closure,
                                             const Arguments& arguments) {
  Text out;
  {
    const FrameScope frame(*this, closure);
    const OutputScope output(*this, out);
    JINJA_RETURN_IF_ERROR(BindParameters(definition, arguments));
    JINJA_RETURN_IF_ERROR(Run(definition.body).status());
  }
  return runtime_.NewString(std::move(out));
}

absl::Status Interpreter::BindParameters(const MacroDefinition& definition,
                                         const Arguments& arguments) {
  Arguments rest = arguments;
  const size_t count = definition.parameters.size();
  const size_t given = std::min(count, arguments.positional.size());
  std::vector<bool> bound(count, false);
  for (size_t i = 0; i < count; ++i) {
    const auto& [id, name] = definition.parameters[i];
    Value value = Value::Undefined(StrCat("parameter '", name, "' was not provided"));
    const auto keyword = std::find_if(rest.keyword.begin(), rest.keyword.end(),
                                      [&name = name](const auto& k) { return k.first == name; });
    if (i < given) {
      value = arguments.positional[i];
      bound[i] = true;
    } else if (keyword != rest.keyword.end()) {
      value = std::move(keyword->second);
      rest.keyword.erase(keyword);
      bound[i] = true;
    }
    SetVariable(id, std::move(value));
  }
  JINJA_RETURN_IF_ERROR(BindSpecial(definition, std::move(rest), given));
  // Defaults see the parameters before them.
  const size_t first_default = count - definition.defaults.size();
  for (size_t i = first_default; i < count; ++i) {
    if (!bound[i]) {
      JINJA_ASSIGN_OR_RETURN(Value value, Evaluate(*definition.defaults[i - first_default]));
      SetVariable(definition.parameters[i].first, std::move(value));
    }
  }
  return absl::OkStatus();
}

absl::Status Interpreter::BindSpecial(const MacroDefinition& definition, Arguments rest,
                                      size_t used) {
  if (definition.uses_caller) {
    Value caller = Value::Undefined("No caller defined");
    const auto keyword = std::find_if(rest.keyword.begin(), rest.keyword.end(),
                                      [](const auto& k) { return k.first == "caller"; });
    if (keyword != rest.keyword.end()) {
      caller = std::move(keyword->second);
      rest.keyword.erase(keyword);
    }
    SetVariable(kCallerName, std::move(caller));
  }
  if (definition.uses_kwargs) {
    Dict kwargs;
    for (const auto& [name, value] : rest.keyword) {
      kwargs.Set(Value::Literal(name), value);
    }
    JINJA_ASSIGN_OR_RETURN(Value dict, runtime_.NewDict(std::move(kwargs)));
    SetVariable(kKwargsName, std::move(dict));
  } else if (!rest.keyword.empty()) {
    return RenderError(StrCat("macro '", definition.name, "' takes no keyword argument '",
                              rest.keyword.front().first, "'"));
  }
  if (definition.uses_varargs) {
    rest.positional.erase(rest.positional.begin(),
                          rest.positional.begin() + static_cast<std::ptrdiff_t>(used));
    JINJA_ASSIGN_OR_RETURN(Value tuple, runtime_.NewTuple(std::move(rest.positional)));
    SetVariable(kVarargsName, std::move(tuple));
  } else if (rest.positional.size() > used) {
    return RenderError(StrCat("macro '", definition.name, "' takes not more than ",
                              definition.parameters.size(), " argument(s)"));
  }
  return absl::OkStatus();
}

}  // namespace tessera::coordinator::jinja
