// In which forms a chat template takes the parts of a message that clients write in several ways:
// content as a string or as a list of parts, content that is null, and the arguments of tool calls
// as an object or as the JSON string that the wire carries.
//
// A template that gets the wrong form loses the text, prints Python's None or quotes JSON twice,
// mostly without an error. So each form is tried at load: the template renders small conversations
// that differ in one value, and takes the form if the value shows in the text.
//
// Pure functions, thread-safe. Probing takes some eighty short renderings.
#pragma once

#include <array>
#include <cstdint>

#include "coordinator/jinja/chat_template.h"

namespace tessera::coordinator {

enum class ContentForm : uint8_t {
  kText,     // a string; parts are joined
  kParts,    // a list of {"type": "text", "text": ...}; a string is its one part
  kAsSent,   // both, to the same effect
  kNeither,  // the template renders both and writes neither
};

enum class ArgumentsForm : uint8_t {
  kObject,
  kText,    // the JSON string
  kEither,  // an object, or a string that is not JSON as it stands
};

// A template may treat each of these in its own way.
enum class MessageKind : uint8_t {
  kSystem,
  kUser,
  kAssistant,
  kToolCalls,  // an assistant's message with tool_calls
  kTool,
};
inline constexpr size_t kMessageKinds = 5;

struct MessageForms {
  struct Content {
    ContentForm form = ContentForm::kText;
    bool takes_null = false;  // without an error, and without writing None
  };
  std::array<Content, kMessageKinds> content;  // by MessageKind; kNeither for all or for none
  ArgumentsForm arguments = ArgumentsForm::kObject;
  // Tool calls are written only beside content that is null, not beside "".
  bool calls_need_null = false;
  // System messages are written wherever they stand, at their place, not the first message alone.
  bool takes_late_system = false;
  // False where the template refuses or loses what it writes otherwise: a second call of a message,
  // a user's message behind another one, and one behind a tool's result.
  bool takes_two_calls = true;
  bool takes_user_behind_user = true;
  bool takes_user_behind_tool = true;

  const Content& Of(MessageKind kind) const { return content[static_cast<size_t>(kind)]; }
};

MessageForms ProbeMessageForms(const ChatTemplate& chat_template);

// A template and its forms.
struct ProbedTemplate {
  // Implicit: whoever has a template has its forms.
  ProbedTemplate(ChatTemplate parsed)  // NOLINT(google-explicit-constructor)
      : chat_template(std::move(parsed)), forms(ProbeMessageForms(chat_template)) {}

  ChatTemplate chat_template;
  MessageForms forms;
};

}  // namespace tessera::coordinator
