#include "coordinator/api/call_grammar.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/answer/call_formats.h"
#include "coordinator/grammar/json_grammar.h"
#include "coordinator/grammar/schema_grammar.h"
#include "coordinator/grammar/tagged_grammar.h"
#include "third_party/spdlog/log.h"
#include "third_party/xgrammar/token_grammar.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

// Adds the rule of arguments that are of a schema.
absl::StatusOr<SchemaGrammar> AddArguments(const CallFormat& format, const Ordered& tools,
                                           const std::string& function, const Ordered& schema,
                                           SchemaMode mode, GrammarText* text) {
  if (!format.frame->tags.has_value()) return AddSchema(schema, mode, text);
  const ToolSchemas schemas(tools);
  return AddTaggedArguments(
      schema, mode, *format.frame->tags,
      [&](const std::string& property) { return schemas.IsText(function, property); }, text);
}

// Functions with arguments held to their parameters.
enum class Held { kAll, kStrict };

// The rule of a function's arguments. `any_rule`: that of any arguments, once there is one.
absl::StatusOr<std::string> ArgumentsRule(const CallFormat& format, const Ordered& tools,
                                          size_t index, Held held, std::string* any_rule,
                                          GrammarText* text) {
  const Ordered& function = tools[index].at("function");
  const std::string where = absl::StrCat("tools[", index, "]");
  const Ordered parameters = function.value("parameters", Ordered());
  const bool strict = function.value("strict", Ordered()) == Ordered(true);
  const auto any = [&] {
    const std::optional<TaggedForm>& tags = format.frame->tags;
    if (any_rule->empty()) {
      *any_rule = tags.has_value() ? AnyTaggedArguments(*tags, text) : JsonGrammar(text).Object();
    }
    return *any_rule;
  };
  if (!parameters.is_object() || parameters.empty() || (held == Held::kStrict && !strict))
    return any();
  Ordered schema = parameters;
  if (!schema.contains("type")) schema["type"] = "object";
  GrammarText with = *text;
  absl::StatusOr<SchemaGrammar> added =
      AddArguments(format, tools, function.at("name").get<std::string>(), schema,
                   strict ? SchemaMode::kStrict : SchemaMode::kLoose, &with);
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

// A call of each function that may be behind `begun`, or of the one that is all of it; without what
// ends the last call.
absl::StatusOr<std::vector<std::string>> CallsBehind(const CallFormat& format, const Ordered& tools,
                                                     const std::string& begun, bool is_whole,
                                                     Held held, GrammarText* text) {
  const CallFrame& frame = *format.frame;
  const std::string number =
      absl::StrCat("(\"0\" | [1-9] [0-9]{0,3}) ", GrammarText::Quoted(frame.behind_number), " ");
  std::vector<std::string> calls;
  std::string any_rule;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string start =
        format.call_start(tools[i].at("function").at("name").get<std::string>());
    if (is_whole ? start != begun : !start.starts_with(begun)) continue;
    const auto arguments = ArgumentsRule(format, tools, i, held, &any_rule, text);
    if (!arguments.ok()) return arguments.status();
    calls.push_back(absl::StrCat(GrammarText::Quoted(start.substr(begun.size())), " ",
                                 frame.behind_number.empty() ? "" : number,
                                 frame.tags.has_value() ? "" : JsonGrammar(text).space() + " ",
                                 *arguments, " ", GrammarText::Quoted(frame.close)));
  }
  return calls;
}

// Further calls behind the first, and what ends the last one.
absl::StatusOr<std::string> MoreCalls(const CallFormat& format, const ChatTools& tools,
                                      const Ordered& conversation, GrammarText* text) {
  const CallFrame& frame = *format.frame;
  const std::string finish = GrammarText::Quoted(frame.finish);
  if (!frame.next.has_value() || tools.one_call) return finish;
  const auto calls =
      CallsBehind(format, conversation.at("tools"), frame.section, false, Held::kAll, text);
  if (!calls.ok()) return calls.status();
  return absl::StrCat("(", GrammarText::Quoted(*frame.next), " ",
                      text->Add(absl::StrJoin(*calls, " | ")), ")* ", finish);
}

// Whether an answer shows where its calls begin, so that those of a free one can be held.
bool MarksCalls(const CallFormat& format) {
  return format.frame.has_value() && !format.has_thinking && !format.opening.empty() &&
         format.frame->section.starts_with(format.opening.front());
}

// From the first call's opening mark on.
absl::StatusOr<std::string> MarkedCalls(const CallFormat& format, const ChatTools& tools,
                                        const Ordered& conversation, Held held, GrammarText* text) {
  const CallFrame& frame = *format.frame;
  const auto calls =
      CallsBehind(format, conversation.at("tools"), frame.section, false, held, text);
  if (!calls.ok()) return calls.status();
  const std::string call = text->Add(absl::StrJoin(*calls, " | "));
  std::string more;
  if (frame.next.has_value() && !tools.one_call)
    more = absl::StrCat("(", GrammarText::Quoted(*frame.next), " ", call, ")* ");
  return absl::StrCat(GrammarText::Quoted(frame.section.substr(format.opening.front().size())), " ",
                      call, " ", more, GrammarText::Quoted(frame.finish));
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

absl::Status HoldCallsBesideForm(const ServedModel& model, const Ordered& conversation,
                                 AnswerStart* start, ChatTools* tools) {
  const CallFormat* format = model.call_format;
  constexpr size_t kMaxHeld = 128;  // each is a part of the grammar
  if (!tools->offered || !tools->call_start.empty() || !HasTokenGrammars() ||
      !MarksCalls(*format) || conversation.at("tools").size() > kMaxHeld) {
    return absl::OkStatus();
  }
  GrammarText text;
  const auto calls = MarkedCalls(*format, *tools, conversation, Held::kStrict, &text);
  if (!calls.ok()) return calls.status();
  tools->not_enforced.clear();
  start->calls.clear();
  start->held_calls = [format, tools = *tools,
                       functions =
                           Ordered{{"tools", conversation.at("tools")}}](GrammarText* into) {
    GrammarText with = *into;
    const auto again = MarkedCalls(*format, tools, functions, Held::kStrict, &with);
    if (!again.ok()) return std::string();  // too large beside the form
    *into = std::move(with);
    return absl::StrCat(GrammarText::Quoted(format->opening.front()), " ", *again);
  };
  return absl::OkStatus();
}

absl::StatusOr<std::string> DemandedCallGrammar(const ServedModel& model,
                                                const Ordered& conversation, ChatTools* tools) {
  const CallFormat* format = model.call_format;
  if (tools->call_start.empty() || !HasTokenGrammars() || !format->frame.has_value())
    return std::string();
  GrammarText text;
  const bool is_named = tools->call_start != format->call_start("");
  const auto calls = CallsBehind(*format, conversation.at("tools"), tools->call_start, is_named,
                                 Held::kAll, &text);
  if (!calls.ok()) return calls.status();
  // One of a function that is named is one.
  absl::StatusOr<std::string> end = GrammarText::Quoted(format->frame->finish);
  if (!is_named) end = MoreCalls(*format, *tools, conversation, &text);
  if (!end.ok()) return end.status();
  tools->not_enforced.clear();
  return text.WithRoot(absl::StrCat("(", absl::StrJoin(*calls, " | "), ") ", *end));
}

absl::StatusOr<std::string> OfferedCallGrammar(const ServedModel& model,
                                               const Ordered& conversation, AnswerStart start,
                                               ChatTools* tools) {
  const CallFormat* format = model.call_format;
  if (!tools->offered || !tools->call_start.empty() || !HasTokenGrammars() ||
      !MarksCalls(*format) || !HasStrictFunction(conversation.at("tools"))) {
    return std::string();
  }
  GrammarText text;
  const auto all = MarkedCalls(*format, *tools, conversation, Held::kAll, &text);
  if (!all.ok()) return all.status();
  tools->not_enforced.clear();
  const std::string answer = absl::StrCat(TextWithout(format->opening, &text), " | ",
                                          TextUpTo(format->opening, &text), " ", *all);
  start.calls.clear();  // the answer has them
  return text.WithRoot(BehindStart(start, answer, &text));
}

}  // namespace tessera::coordinator
