#include "coordinator/api/chat_turns.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr char kContent[] = "content";
constexpr char kRole[] = "role";
constexpr char kToolCalls[] = "tool_calls";
constexpr char kCallId[] = "tool_call_id";

bool HasRole(const Ordered& message, const char* role) { return Member(message, kRole) == role; }
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
    absl::StrAppend(&content.get_ref<std::string&>(), "\n\n", text);
  } else {
    content = text;
  }
}

// Which call each of `count` results behind a message answers: the one that it names, the last one
// where it names none of them, and by its place where it has no id.
std::vector<size_t> CallsOfResults(const Ordered& calls, const Ordered& messages, size_t first,
                                   size_t count) {
  std::map<std::string, size_t> call_of;
  for (size_t k = 0; k < calls.size(); ++k) {
    if (const Ordered& id = Member(calls[k], "id"); id.is_string())
      call_of.emplace(id.get<std::string>(), k);
  }
  const size_t last = calls.size() - 1;
  std::vector<size_t> answered(count);
  for (size_t r = 0; r < count; ++r) {
    const Ordered& id = Member(messages[first + r], kCallId);
    const bool named = id.is_string() && !id.get_ref<const std::string&>().empty();
    const auto found = named ? call_of.find(id.get<std::string>()) : call_of.end();
    answered[r] = found != call_of.end() ? found->second : named ? last : std::min(r, last);
  }
  return answered;
}

Ordered SplitCalls(const MessageForms& forms, Ordered messages) {
  const bool in_parts = forms.Of(MessageKind::kToolCalls).form == ContentForm::kParts;
  Ordered nothing = in_parts ? Ordered::array() : Ordered("");
  if (forms.calls_need_null) nothing = nullptr;
  Ordered split = Ordered::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const Ordered& sent = Member(messages[i], kToolCalls);
    if (!sent.is_array() || sent.size() < 2) {
      split.push_back(std::move(messages[i]));
      continue;
    }
    Ordered calls = std::exchange(messages[i][kToolCalls], Ordered::array());
    size_t end = i + 1;
    while (end < messages.size() && HasRole(messages[end], "tool")) ++end;
    std::vector<std::vector<size_t>> results(calls.size());
    const std::vector<size_t> answered = CallsOfResults(calls, messages, i + 1, end - i - 1);
    for (size_t r = 0; r < answered.size(); ++r) results[answered[r]].push_back(i + 1 + r);
    for (size_t k = 0; k < calls.size(); ++k) {
      Ordered one = {{kRole, "assistant"}, {kContent, nothing}};
      if (k == 0) one = std::move(messages[i]);
      one[kToolCalls] = Ordered::array({std::move(calls[k])});
      split.push_back(std::move(one));
      for (const size_t r : results[k]) split.push_back(std::move(messages[r]));
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
    if (HasRole(folded.back(), "assistant") && (!waiting.empty() || ResultFollows(messages, i))) {
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
