#include "coordinator/jinja/message_forms.h"

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;

// A probe is small, so a template that needs more than this is not worth waiting for.
constexpr RenderLimits kProbeLimits = {.max_steps = 100'000, .max_output_bytes = 1 << 20};

// Two values of the same length: a template that only counts characters writes the same for both.
constexpr std::string_view kFirst = "alpha";
constexpr std::string_view kSecond = "gamma";
constexpr char kCallId[] = "abcdefghi";  // Mistral's templates demand nine characters
constexpr char kFunction[] = "probe_function";
constexpr char kKey[] = "probe_key";

using Rendered = std::optional<std::string>;  // nothing where the template fails

size_t Count(const Rendered& text, std::string_view word) {
  size_t count = 0;
  if (!text.has_value()) return count;
  for (size_t at = text->find(word); at != std::string::npos; at = text->find(word, at + 1)) {
    ++count;
  }
  return count;
}

// What the template makes of two values in one place.
struct Pair {
  Rendered first;
  Rendered second;

  bool Shows() const { return first.has_value() && second.has_value() && *first != *second; }
  bool Renders() const { return first.has_value() && second.has_value(); }
};

Json Parts(std::string_view text) {
  return Json::array({{{"type", "text"}, {"text", std::string(text)}}});
}

Json ToolCalls(const Json& arguments) {
  return Json::array({{{"id", kCallId},
                       {"type", "function"},
                       {"function", {{"name", kFunction}, {"arguments", arguments}}}}});
}

Json ArgumentObject(std::string_view value) { return {{kKey, std::string(value)}}; }

Json ArgumentText(std::string_view value) {
  return "{\"" + std::string(kKey) + "\": \"" + std::string(value) + "\"}";
}

class Prober {
 public:
  explicit Prober(const ChatTemplate& chat_template) : template_(chat_template) {}

  MessageForms Run() {
    MessageForms forms;
    ProbeArguments(forms);
    const bool as_text = forms.arguments == ArgumentsForm::kText;
    arguments_ = as_text ? ArgumentText(kFirst) : ArgumentObject(kFirst);
    const std::optional<ContentForm> user = ProbeContent(MessageKind::kUser);
    for (size_t i = 0; i < kMessageKinds; ++i) {
      const auto kind = static_cast<MessageKind>(i);
      forms.content[i].form = FormOf(ProbeContent(kind), user);
      forms.content[i].takes_null = TakesNull(kind, forms.content[i].form);
    }
    bool& calls_take_null = forms.content[static_cast<size_t>(MessageKind::kToolCalls)].takes_null;
    if (calls_written_ && !forms.calls_need_null) calls_take_null &= WritesCallsBesideNull(as_text);
    ProbeTurns(forms);
    return forms;
  }

 private:
  Rendered Render(const Json& messages) const {
    const auto segments =
        template_.RenderOrdered({{"messages", messages}}, /*now_unix_seconds=*/0, kProbeLimits);
    if (!segments.ok()) return std::nullopt;
    std::string text;
    for (const TextSegment& segment : *segments) text += segment.text;
    return text;
  }

  // What a template does not show of a kind says nothing about its form: the user's is the best
  // guess, and where the user's content is not shown either, nothing fits.
  static ContentForm FormOf(std::optional<ContentForm> own, std::optional<ContentForm> user) {
    const ContentForm guess = user.value_or(ContentForm::kText);
    if (guess != ContentForm::kNeither &&
        own.value_or(ContentForm::kNeither) != ContentForm::kNeither)
      return *own;
    return guess == ContentForm::kAsSent ? ContentForm::kText : guess;
  }

  // A short conversation around one message of the kind.
  Json Conversation(MessageKind kind, const Json& content, const Json& arguments) const {
    const Json user = {{"role", "user"}, {"content", "hi"}};
    const auto tool = [](const Json& result) -> Json {
      return {
          {"role", "tool"}, {"tool_call_id", kCallId}, {"name", kFunction}, {"content", result}};
    };
    const auto calls = [&arguments](const Json& text) -> Json {
      return {{"role", "assistant"}, {"content", text}, {"tool_calls", ToolCalls(arguments)}};
    };
    switch (kind) {
      case MessageKind::kSystem:
        return Json::array({{{"role", "system"}, {"content", content}}, user});
      case MessageKind::kUser: return Json::array({{{"role", "user"}, {"content", content}}});
      case MessageKind::kAssistant:
        return Json::array({user, {{"role", "assistant"}, {"content", content}}, user});
      case MessageKind::kToolCalls: return Json::array({user, calls(content), tool("1")});
      case MessageKind::kTool: break;
    }
    return Json::array({user, calls(call_content_), tool(content)});
  }

  Pair RenderArguments(const Json& content, const Json& first, const Json& second) const {
    return {Render(Conversation(MessageKind::kToolCalls, content, first)),
            Render(Conversation(MessageKind::kToolCalls, content, second))};
  }
  Pair RenderObjects(const Json& content) const {
    return RenderArguments(content, ArgumentObject(kFirst), ArgumentObject(kSecond));
  }
  Pair RenderTexts(const Json& content) const {
    return RenderArguments(content, ArgumentText(kFirst), ArgumentText(kSecond));
  }
  bool WritesCallsBesideNull(bool as_text) const {
    return (as_text ? RenderTexts(Json()) : RenderObjects(Json())).Shows();
  }

  // Some templates write calls only beside content that is null: try "" first, then null.
  void ProbeArguments(MessageForms& forms) {
    for (const Json& content : {Json(""), Json()}) {
      call_content_ = content;
      const Pair object = RenderObjects(content);
      const Pair text = RenderTexts(content);
      // Python's way to print a dict, and JSON inside a JSON string: not what the model has learnt.
      const bool takes_object =
          object.Shows() && Count(object.first, "'" + std::string(kKey) + "': '") == 0;
      const bool takes_text =
          text.Shows() && Count(text.first, "\\\"" + std::string(kKey) + "\\\"") == 0;
      if (!takes_object && !takes_text) continue;
      forms.arguments = !takes_object ? ArgumentsForm::kText
                        : takes_text  ? ArgumentsForm::kEither
                                      : ArgumentsForm::kObject;
      forms.calls_need_null = content.is_null();
      calls_written_ = true;
      return;
    }
    // The template writes no calls, or only with what the probes lack: nothing is known.
    call_content_ = "";
    forms.arguments = ArgumentsForm::kEither;
  }

  Pair RenderContent(MessageKind kind, const Json& first, const Json& second) const {
    return {Render(Conversation(kind, first, arguments_)),
            Render(Conversation(kind, second, arguments_))};
  }

  // Nothing where the template fails.
  std::optional<ContentForm> ProbeContent(MessageKind kind) const {
    const Pair text = RenderContent(kind, std::string(kFirst), std::string(kSecond));
    const Pair parts = RenderContent(kind, Parts(kFirst), Parts(kSecond));
    if (text.Shows()) {
      const bool same = parts.Renders() && *text.first == *parts.first;
      return same ? ContentForm::kAsSent : ContentForm::kText;
    }
    if (parts.Shows()) return ContentForm::kParts;
    if (text.Renders() && parts.Renders()) return ContentForm::kNeither;
    return std::nullopt;
  }

  Json Message(const MessageForms& forms, MessageKind kind, std::string_view text) const {
    constexpr const char* kRoles[] = {"system", "user", "assistant", "assistant", "tool"};
    const bool in_parts = forms.Of(kind).form == ContentForm::kParts;
    Json message = {{"role", kRoles[static_cast<size_t>(kind)]},
                    {"content", in_parts ? Parts(text) : Json(std::string(text))}};
    if (kind == MessageKind::kToolCalls) {
      message["content"] = call_content_;
      message["tool_calls"] = ToolCalls(arguments_);
    }
    if (kind == MessageKind::kTool)
      message.update({{"tool_call_id", kCallId}, {"name", kFunction}});
    return message;
  }

  // Whether the template writes these texts, in this order.
  bool Writes(const Json& messages, std::initializer_list<std::string_view> texts) const {
    const Rendered rendered = Render(messages);
    if (!rendered.has_value()) return false;
    size_t at = 0;
    for (const std::string_view text : texts) {
      at = rendered->find(text, at);
      if (at == std::string::npos) return false;
      at += text.size();
    }
    return true;
  }

  // What templates do with turns that others have not.
  void ProbeTurns(MessageForms& forms) const {
    const Json user = Message(forms, MessageKind::kUser, "first_text");
    const Json other_user = Message(forms, MessageKind::kUser, "second_text");
    const Json assistant = Message(forms, MessageKind::kAssistant, "answer_text");
    const Json system = Message(forms, MessageKind::kSystem, "rule_text");
    const Json late = Message(forms, MessageKind::kSystem, "late_text");
    const Json call = Message(forms, MessageKind::kToolCalls, "");
    const Json result = Message(forms, MessageKind::kTool, "result_text");
    const Json called = Json::array({user, call, result});
    const auto behind_call = [&](const Json& message) {
      Json messages = called;
      messages.push_back(message);
      return messages;
    };
    const bool writes_results = calls_written_ && Writes(called, {"first_text", "result_text"});
    // Behind another one, behind a user's message, between turns, and behind a result.
    forms.takes_late_system =
        Writes(Json::array({system, late, user}), {"rule_text", "late_text", "first_text"}) &&
        Writes(Json::array({system, user, late}), {"rule_text", "first_text", "late_text"}) &&
        Writes(Json::array({user, late, assistant, other_user}),
               {"first_text", "late_text", "answer_text"}) &&
        (!writes_results || Writes(behind_call(late), {"result_text", "late_text"}));
    forms.takes_user_behind_user =
        !Writes(Json::array({user}), {"first_text"}) ||
        Writes(Json::array({user, other_user}), {"first_text", "second_text"});
    forms.takes_user_behind_tool =
        !writes_results || Writes(behind_call(other_user), {"result_text", "second_text"});
    forms.takes_two_calls = !writes_results || TakesTwoCalls(user, call, result);
  }

  // True too where the same calls in two messages are not written either.
  bool TakesTwoCalls(const Json& user, const Json& call, const Json& result) const {
    constexpr char kOther[] = "other_function", kOtherId[] = "ihgfedcba";
    Json other = call;
    other["tool_calls"][0]["id"] = kOtherId;
    other["tool_calls"][0]["function"]["name"] = kOther;
    Json both = call;
    both["tool_calls"].push_back(other["tool_calls"][0]);
    Json other_result = result;
    other_result.update({{"tool_call_id", kOtherId}, {"name", kOther}});
    return Writes(Json::array({user, both, result, other_result}), {kFunction, kOther}) ||
           !Writes(Json::array({user, call, result, other, other_result}), {kFunction, kOther});
  }

  bool TakesNull(MessageKind kind, ContentForm form) const {
    const Json empty = form == ContentForm::kParts ? Json::array() : Json("");
    const Rendered with_null = Render(Conversation(kind, Json(), arguments_));
    const Rendered with_empty = Render(Conversation(kind, empty, arguments_));
    return with_null.has_value() && Count(with_null, "None") <= Count(with_empty, "None");
  }

  const ChatTemplate& template_;
  Json call_content_;  // beside tool calls, where they are written
  Json arguments_;
  bool calls_written_ = false;
};

}  // namespace

MessageForms ProbeMessageForms(const ChatTemplate& chat_template) {
  return Prober(chat_template).Run();
}

}  // namespace tessera::coordinator
