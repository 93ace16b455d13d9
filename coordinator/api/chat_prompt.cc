#include "coordinator/api/chat_prompt.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "coordinator/tokenizer/json_fields.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr char kMessages[] = "messages";
constexpr char kArguments[] = "chat_template_kwargs";

// A message's content: text, or parts that are all text.
absl::StatusOr<Ordered> FlatMessage(const Ordered& message, size_t index) {
  const std::string where = absl::StrCat("messages[", index, "]");
  if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
    return FieldError("messages",
                      absl::StrCat(where, ": an object with a string role is expected"));
  }
  Ordered flat = message;
  auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    flat["content"] = "";
    return flat;
  }
  if (content->is_string()) return flat;
  if (!content->is_array()) {
    return FieldError("messages",
                      absl::StrCat(where, ".content: a string or an array of parts is expected"));
  }
  std::string text;
  for (const Ordered& part : *content) {
    if (!part.is_object() || part.value("type", Ordered()) != "text" || !part.contains("text") ||
        !part["text"].is_string()) {
      return FieldError(
          "messages", absl::StrCat(where, ".content: parts other than text are not supported yet"));
    }
    text += part["text"].get_ref<const std::string&>();
  }
  flat["content"] = std::move(text);
  return flat;
}

// Ends the prompt behind the last occurrence of `content`, where the template put the last message.
absl::Status CutBehind(const std::string& content, std::vector<TextSegment>& segments) {
  std::string rendered;
  for (const TextSegment& segment : segments) rendered += segment.text;
  const std::string trimmed(absl::StripAsciiWhitespace(content));
  const size_t begin = rendered.rfind(trimmed);
  if (begin == std::string::npos) {
    return FieldError("continue_final_message",
                      "continue_final_message: the chat template changes the content of the last "
                      "message, so it cannot be continued");
  }
  // Spaces behind the content stay where the template keeps them.
  const std::string kept(absl::StripLeadingAsciiWhitespace(content));
  const bool whole = rendered.compare(begin, kept.size(), kept) == 0;
  size_t left = begin + (whole ? kept : trimmed).size();
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].text.size() < left) {
      left -= segments[i].text.size();
      continue;
    }
    segments[i].text.resize(left);
    segments.resize(i + 1);
    break;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatPromptOptions> ReadChatPromptOptions(std::optional<bool> add_generation_prompt,
                                                        std::optional<bool> continue_final_message,
                                                        std::optional<bool> add_special_tokens) {
  ChatPromptOptions options;
  options.continue_final_message = continue_final_message.value_or(false);
  options.add_generation_prompt = add_generation_prompt.value_or(!options.continue_final_message);
  options.add_special_tokens = add_special_tokens.value_or(false);
  if (options.continue_final_message && options.add_generation_prompt) {
    return FieldError(
        "continue_final_message",
        "continue_final_message: cannot be combined with add_generation_prompt: true");
  }
  return options;
}

absl::StatusOr<Ordered> ReadConversation(std::string_view text) {
  absl::StatusOr<Ordered> conversation = ParseOrdered(text, "messages", {kMessages, kArguments});
  if (conversation.ok()) return conversation;
  return FieldError(kMessages, std::string(conversation.status().message()));
}

absl::StatusOr<std::vector<int32_t>> EncodeChat(const ServedModel& model,
                                                const Ordered& conversation,
                                                const ChatPromptOptions& options,
                                                int64_t now_unix_seconds) {
  static const auto* const none = new Ordered();
  const auto member = [&](const char* name) -> const Ordered& {
    const auto found = conversation.find(name);
    return found == conversation.end() ? *none : *found;
  };
  const Ordered& messages = member(kMessages);
  const Ordered& arguments = member(kArguments);
  if (!model.chat_template.has_value()) {
    return FieldError("messages", absl::StrCat("the model '", model.name,
                                               "' has no chat template: use /v1/completions"));
  }
  if (!messages.is_array() || messages.empty()) {
    return FieldError("messages", "messages: an array of at least one message is expected");
  }
  for (const char* own :
       {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}) {
    if (arguments.contains(own)) {
      return FieldError("chat_template_kwargs", absl::StrCat("chat_template_kwargs: '", own,
                                                             "' is a field of the request itself"));
    }
  }
  Ordered context = {{"messages", Ordered::array()},
                     {"add_generation_prompt", options.add_generation_prompt},
                     {"chat_template_kwargs", arguments}};
  for (size_t i = 0; i < messages.size(); ++i) {
    absl::StatusOr<Ordered> flat = FlatMessage(messages[i], i);
    if (!flat.ok()) return flat.status();
    if ((*flat)["role"] == "developer" && !model.chat_template->Names("developer"))
      (*flat)["role"] = "system";
    context["messages"].push_back(*std::move(flat));
  }
  absl::StatusOr<std::vector<TextSegment>> segments =
      model.chat_template->RenderOrdered(context, now_unix_seconds);
  if (!segments.ok()) return FieldError("messages", std::string(segments.status().message()));
  if (options.continue_final_message) {
    const auto& last = context["messages"].back()["content"].get_ref<const std::string&>();
    if (absl::Status cut = CutBehind(last, *segments); !cut.ok()) return cut;
  }
  for (const TextSegment& segment : *segments) {
    if (!options.must_fit) break;
    if (absl::Status s = CheckMayFit(model, kMessages, segment.text); !s.ok()) return s;
  }
  return model.tokenizer->EncodeSegments(*segments, options.add_special_tokens);
}

}  // namespace tessera::coordinator
