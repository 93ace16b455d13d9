#include "coordinator/api/chat_turns.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr char kContent[] = "content";
constexpr char kRole[] = "role";
constexpr char kToolCalls[] = "tool_calls";
constexpr char kCallId[] = "tool_call_id";

bool HasRole(const Ordered& message, const char* role) {
  return Member(message, kRole) == role;
}
bool IsSystem(const Ordered& message) {
  return HasRole(message, "system") || HasRole(message, "developer");
}

std::string TextOf(const Ordered& message) {
  const Ordered& content = Member(message, kContent);
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array()) return text;
  for (const Ordered& part : content) text += part["text"].get_ref<const std::string&>();
  return text;
}

// Adds a paragraph to a message's text.
void Append(const std::string& text, Ordered& message) {
  Ordered& content = message[kContent];
  if (content.is_array()) {
    content.push_back({{"type", "text"}, {"text", text}});
  } else if (content.is_string() && !content.get_ref<const std::string&>().empty()) {
    content = absl::StrCat(content.get<std::string>(), "\n\n", text);
  } else {
    content = text;
  }
}

// Results that name no call of the message stay behind the last one.
Ordered SplitCalls(const MessageForms& forms, Ordered messages) {
  const bool in_parts = forms.Of(MessageKind::kToolCalls).form == ContentForm::kParts;
  Ordered nothing = in_parts ? Ordered::array() : Ordered("");
  if (forms.calls_need_null) nothing = nullptr;
  Ordered split = Ordered::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const size_t calls = Member(messages[i], kToolCalls).size();
    if (calls < 2) {
      split.push_back(std::move(messages[i]));
      continue;
    }
    size_t end = i + 1;
    while (end < messages.size() && HasRole(messages[end], "tool")) ++end;
    for (size_t k = 0; k < calls; ++k) {
      const Ordered& call = messages[i][kToolCalls][k];
      Ordered one = messages[i];
      if (k > 0) one = {{kRole, "assistant"}, {kContent, nothing}};
      one[kToolCalls] = Ordered::array({call});
      split.push_back(std::move(one));
      for (size_t r = i + 1; r < end; ++r) {
        const bool is_its = Member(messages[r], kCallId) == Member(call, "id");
        if (messages[r].is_null() || (!is_its && k + 1 < calls)) continue;
        split.push_back(std::exchange(messages[r], Ordered()));
      }
    }
    i = end - 1;
  }
  return split;
}

// Whether the results of calls come next, system messages aside.
bool ResultFollows(const Ordered& messages, size_t from) {
  while (from < messages.size() && IsSystem(messages[from])) ++from;
  return from < messages.size() && HasRole(messages[from], "tool");
}

// Leaves no system message but the first. Two turns of a user's are none of what it makes: many
// templates want turns that alternate.
Ordered FoldSystemMessages(bool users_in_parts, Ordered messages) {
  Ordered folded = Ordered::array();
  std::string waiting;   // for the result of a call that stands before it
  bool is_made = false;  // the last one is a user's turn that holds a system message alone
  for (size_t i = 0; i < messages.size(); ++i) {
    Ordered& message = messages[i];
    if (!IsSystem(message) || folded.empty()) {
      if (is_made && HasRole(message, "user")) {
        Append(TextOf(message), folded.back());
      } else {
        folded.push_back(std::move(message));
      }
      is_made = false;
      if (!waiting.empty()) Append(std::exchange(waiting, ""), folded.back());
      continue;
    }
    const std::string text = TextOf(message);
    if (text.empty()) continue;
    if (IsSystem(folded.back())) {
      Append(text, folded.back());
      continue;
    }
    const std::string reminder = absl::StrCat("<system-reminder>\n", text, "\n</system-reminder>");
    if (HasRole(folded.back(), "assistant") && ResultFollows(messages, i)) {
      absl::StrAppend(&waiting, waiting.empty() ? "" : "\n\n", reminder);
      continue;
    }
    if (!HasRole(folded.back(), "user") && !HasRole(folded.back(), "tool")) {
      folded.push_back(
          {{kRole, "user"}, {kContent, users_in_parts ? Ordered::array() : Ordered("")}});
      is_made = true;
    }
    Append(reminder, folded.back());
  }
  return folded;
}

// Joins a user's messages to what stands before them.
Ordered JoinUsers(const MessageForms& forms, Ordered messages) {
  Ordered joined = Ordered::array();
  for (Ordered& message : messages) {
    const bool follows = !joined.empty() && HasRole(message, "user");
    if (follows && ((!forms.takes_user_behind_user && HasRole(joined.back(), "user")) ||
                    (!forms.takes_user_behind_tool && HasRole(joined.back(), "tool")))) {
      Append(TextOf(message), joined.back());
    } else {
      joined.push_back(std::move(message));
    }
  }
  return joined;
}

}  // namespace

Ordered ToTemplateTurns(const MessageForms& forms, Ordered messages) {
  const bool users_in_parts = forms.Of(MessageKind::kUser).form == ContentForm::kParts;
  if (!forms.takes_late_system) messages = FoldSystemMessages(users_in_parts, std::move(messages));
  if (!forms.takes_two_calls) messages = SplitCalls(forms, std::move(messages));
  if (forms.takes_user_behind_user && forms.takes_user_behind_tool) return messages;
  return JoinUsers(forms, std::move(messages));
}

}  // namespace tessera::coordinator
