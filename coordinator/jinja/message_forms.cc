#include "coordinator/jinja/message_forms.h"

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
    forms.takes_late_system = TakesLateSystem(forms);
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

  // Behind another one, behind a user's message, and between turns.
  bool TakesLateSystem(const MessageForms& forms) const {
    const auto message = [&forms](MessageKind kind, const char* role, std::string_view text) {
      const bool in_parts = forms.Of(kind).form == ContentForm::kParts;
      return Json{{"role", role}, {"content", in_parts ? Parts(text) : Json(std::string(text))}};
    };
    const Json user = message(MessageKind::kUser, "user", "hi");
    const Json assistant = message(MessageKind::kAssistant, "assistant", "yes");
    const Json first = message(MessageKind::kSystem, "system", "be");
    const auto shows = [&](const auto& conversation) {
      return Pair{Render(conversation(message(MessageKind::kSystem, "system", kFirst))),
                  Render(conversation(message(MessageKind::kSystem, "system", kSecond)))}
          .Shows();
    };
    return shows([&](const Json& late) {
             return Json::array({first, late, user});
           }) &&
           shows([&](const Json& late) {
             return Json::array({first, user, late});
           }) &&
           shows([&](const Json& late) {
             return Json::array({user, late, assistant, user});
           });
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
