#include "coordinator/api/call_grammar.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/answer/call_formats.h"
#include "coordinator/grammar/json_grammar.h"
#include "coordinator/grammar/schema_grammar.h"
#include "third_party/spdlog/log.h"
#include "third_party/xgrammar/token_grammar.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

// The rule of a function's arguments.
absl::StatusOr<std::string> ArgumentsRule(const Ordered& function, const std::string& where,
                                          GrammarText* text) {
  const Ordered parameters = function.value("parameters", Ordered());
  const bool strict = function.value("strict", Ordered()) == Ordered(true);
  const auto any = [text] { return JsonGrammar(text).Object(); };
  if (!parameters.is_object() || parameters.empty()) return any();
  Ordered schema = parameters;
  if (!schema.contains("type")) schema["type"] = "object";
  GrammarText with = *text;
  absl::StatusOr<SchemaGrammar> added =
      AddSchema(schema, strict ? SchemaMode::kStrict : SchemaMode::kLoose, &with);
  if (added.ok()) {
    for (const std::string& what : added->left_out) Logger("api").info("{}: {}", where, what);
    *text = std::move(with);
    return added->rule;
  }
  const std::string why(added.status().message());
  if (strict) return FieldError("tools", absl::StrCat(where, ".function.parameters: ", why));
  Logger("api").info("{}: any arguments are taken: {}", where, why);
  return any();
}

}  // namespace

AnswerStart AnswerStartOf(const ServedModel& model, const ChatTools& tools,
                          const ThinkingMarks& thinking) {
  AnswerStart start = {.opening = thinking.opening,
                       .closing = thinking.closing,
                       .is_open = thinking.is_open,
                       .calls = {}};
  if (!tools.offered || model.call_format == nullptr) return start;
  start.calls_in_thinking = model.call_format->has_thinking;
  if (start.calls_in_thinking) return start;
  start.calls = model.call_format->opening;
  start.calls.push_back(model.call_format->call_start(""));
  return start;
}

absl::StatusOr<std::string> DemandedCallGrammar(const ServedModel& model,
                                                const Ordered& conversation, ChatTools* tools) {
  const CallFormat* format = model.call_format;
  if (tools->call_start.empty() || !HasTokenGrammars() || !format->arguments_end.has_value())
    return std::string();
  GrammarText text;
  const std::string space = JsonGrammar(&text).space();
  std::vector<std::string> calls;
  const Ordered& all = conversation.at("tools");
  for (size_t i = 0; i < all.size(); ++i) {
    const Ordered& function = all[i].at("function");
    const std::string start = format->call_start(function.at("name").get<std::string>());
    if (!start.starts_with(tools->call_start)) continue;
    const auto arguments = ArgumentsRule(function, absl::StrCat("tools[", i, "]"), &text);
    if (!arguments.ok()) return arguments.status();
    calls.push_back(absl::StrCat(GrammarText::Quoted(start.substr(tools->call_start.size())), " ",
                                 space, " ", *arguments));
  }
  tools->not_enforced.clear();
  return text.WithRoot(absl::StrCat("(", absl::StrJoin(calls, " | "), ") ",
                                    GrammarText::Quoted(*format->arguments_end)));
}

}  // namespace tessera::coordinator
