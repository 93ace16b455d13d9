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

// A call of each function that may be behind `begun`, without what ends the last one.
absl::StatusOr<std::vector<std::string>> CallsBehind(const CallFormat& format,
                                                     const Ordered& functions,
                                                     const std::string& begun, GrammarText* text) {
  const std::string space = JsonGrammar(text).space();
  std::vector<std::string> calls;
  for (size_t i = 0; i < functions.size(); ++i) {
    const Ordered& function = functions[i].at("function");
    const std::string start = format.call_start(function.at("name").get<std::string>());
    if (!start.starts_with(begun)) continue;
    const auto arguments = ArgumentsRule(function, absl::StrCat("tools[", i, "]"), text);
    if (!arguments.ok()) return arguments.status();
    calls.push_back(absl::StrCat(GrammarText::Quoted(start.substr(begun.size())), " ", space, " ",
                                 *arguments, " ", GrammarText::Quoted(format.json->close)));
  }
  return calls;
}

// Whether an answer shows where its calls begin, so that those of a free one can be held.
bool MarksCalls(const CallFormat& format) {
  return format.json.has_value() && !format.has_thinking && !format.opening.empty() &&
         format.json->section.starts_with(format.opening.front());
}

bool HasStrictFunction(const Ordered& functions) {
  for (const Ordered& tool : functions) {
    if (tool.at("function").value("strict", Ordered()) == Ordered(true)) return true;
  }
  return false;
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
  if (tools->call_start.empty() || !HasTokenGrammars() || !format->json.has_value())
    return std::string();
  GrammarText text;
  const auto calls = CallsBehind(*format, conversation.at("tools"), tools->call_start, &text);
  if (!calls.ok()) return calls.status();
  tools->not_enforced.clear();
  return text.WithRoot(absl::StrCat("(", absl::StrJoin(*calls, " | "), ") ",
                                    GrammarText::Quoted(format->json->finish)));
}

absl::StatusOr<std::string> OfferedCallGrammar(const ServedModel& model,
                                               const Ordered& conversation, AnswerStart start,
                                               ChatTools* tools) {
  const CallFormat* format = model.call_format;
  if (!tools->offered || !tools->call_start.empty() || !HasTokenGrammars() ||
      !MarksCalls(*format) || !HasStrictFunction(conversation.at("tools"))) {
    return std::string();
  }
  const JsonCalls& json = *format->json;
  GrammarText text;
  const auto calls = CallsBehind(*format, conversation.at("tools"), json.section, &text);
  if (!calls.ok()) return calls.status();
  tools->not_enforced.clear();
  const std::string call = text.Add(absl::StrJoin(*calls, " | "));
  std::string all = absl::StrCat(
      GrammarText::Quoted(json.section.substr(format->opening.front().size())), " ", call);
  if (json.next.has_value() && !tools->one_call)
    absl::StrAppend(&all, " (", GrammarText::Quoted(*json.next), " ", call, ")*");
  absl::StrAppend(&all, " ", GrammarText::Quoted(json.finish));
  const std::string answer = absl::StrCat(TextWithout(format->opening, &text), " | ",
                                          TextUpTo(format->opening, &text), " ", all);
  start.calls.clear();  // the answer has them
  return text.WithRoot(BehindStart(start, answer, &text));
}

}  // namespace tessera::coordinator
