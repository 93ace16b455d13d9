#include "coordinator/api/chat_prompt.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "coordinator/answer/call_formats.h"
#include "coordinator/api/body_reader.h"
#include "coordinator/api/chat_messages.h"
#include "coordinator/jinja/values/unicode.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr char kMessages[] = "messages";
constexpr char kArguments[] = "chat_template_kwargs";
constexpr char kTools[] = "tools";

// The text that continue_final_message continues: the last message's content, or its last part.
std::string* TextToContinue(Ordered& messages) {
  Ordered& content = messages.back()["content"];
  if (content.is_string()) return content.get_ptr<std::string*>();
  if (!content.is_array() || content.empty()) return nullptr;
  return content.back()["text"].get_ptr<std::string*>();
}

// Ends the prompt where `tag` stands, which was put with a space behind the last message's content.
// As in transformers, a template that trims that space would have trimmed the content too, so white
// space before the tag goes.
absl::Status CutAtTag(std::string_view content, const std::string& tag,
                      std::vector<TextSegment>& segments) {
  std::string rendered;
  for (const TextSegment& segment : segments) rendered += segment.text;
  const size_t begin = rendered.rfind(tag);
  const jinja::ByteRange trimmed = jinja::TrimSpace(content, true, true);
  if (begin == std::string::npos ||
      rendered.find(content.substr(trimmed.begin, trimmed.end - trimmed.begin)) > begin) {
    return FieldError("continue_final_message",
                      "continue_final_message: the chat template changes the content of the last "
                      "message, so it cannot be continued");
  }
  const bool keeps_space = rendered.compare(begin + tag.size(), 1, " ") == 0;
  rendered.resize(begin);
  size_t left = keeps_space ? begin : jinja::TrimSpace(rendered, false, true).end;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].text.size() < left) {
      left -= segments[i].text.size();
      continue;
    }
    segments[i].text.resize(left);
    segments.resize(i + 1);
    break;
  }
  // A template that writes the content more than once has written the tag as often.
  for (TextSegment& segment : segments) {
    absl::StrReplaceAll({{absl::StrCat(tag, " "), ""}, {tag, ""}}, &segment.text);
  }
  return absl::OkStatus();
}

// The template's text for `context`; with a tag, up to the tag. Each call draws a random tag, so
// that no text of the conversation can equal it.
absl::StatusOr<std::vector<TextSegment>> RenderOpenTurn(const ChatTemplate& chat_template,
                                                        Ordered context, int64_t now_unix_seconds) {
  std::string* const text = TextToContinue(context["messages"]);
  if (text == nullptr) {
    return FieldError(
        "continue_final_message",
        "continue_final_message: the last message has no content that could be continued");
  }
  const std::string content = *text;
  const std::string tag = absl::AsciiStrToUpper(absl::StrCat("CONTINUE_FINAL_MESSAGE_", DrawId()));
  *text += absl::StrCat(tag, " ");
  absl::StatusOr<std::vector<TextSegment>> segments =
      chat_template.RenderOrdered(context, now_unix_seconds);
  if (!segments.ok()) return segments;
  if (absl::Status cut = CutAtTag(content, tag, *segments); !cut.ok()) return cut;
  return segments;
}

absl::Status CheckArguments(const Ordered& arguments) {
  for (const char* own :
       {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}) {
    if (arguments.contains(own)) {
      return FieldError("chat_template_kwargs", absl::StrCat("chat_template_kwargs: '", own,
                                                             "' is a field of the request itself"));
    }
  }
  return absl::OkStatus();
}

// gpt-oss knows three; its thinking cannot be turned off.
std::string_view HarmonyEffort(std::string_view asked) {
  if (asked == "none" || asked == "minimal") return "low";
  if (asked == "xhigh" || asked == "max") return "high";
  return asked;
}

// The template's variables that turn thinking on and off go by several names.
void AddThinkingArguments(const ServedModel& model, const ChatPromptOptions& options,
                          Ordered& context) {
  std::optional<bool> enabled = options.enable_thinking;
  if (options.reasoning_effort.has_value()) {
    if (model.chat_template->chat_template.Names("reasoning_effort")) {
      const bool has_channels = model.call_format != nullptr && model.call_format->has_thinking;
      const std::string& asked = *options.reasoning_effort;
      context["reasoning_effort"] = has_channels ? HarmonyEffort(asked) : asked;
    }
    if (!enabled.has_value()) enabled = *options.reasoning_effort != "none";
  }
  if (!enabled.has_value()) return;
  context["enable_thinking"] = *enabled;
  context["thinking"] = *enabled;
}

// Puts the beginning of the answer behind the prompt.
void AddAnswerStart(const ServedModel& model, const std::string& start, PromptThinking& thinking,
                    std::vector<TextSegment>& segments) {
  if (start.empty()) return;
  std::string text = start;
  if (thinking == PromptThinking::kOpen) text = absl::StrCat(model.thinking.closing, "\n\n", start);
  thinking = PromptThinking::kClosed;
  segments.push_back({std::move(text), /*from_template=*/true});
}

// How many of the prompt's `prompt_tokens` are those of its segments from `first` on. 0: not known.
int32_t TokensFrom(const ServedModel& model, const std::vector<TextSegment>& segments, size_t first,
                   size_t prompt_tokens) {
  if (first == 0 || first == segments.size()) return 0;
  const std::vector<TextSegment> last(segments.begin() + static_cast<std::ptrdiff_t>(first),
                                      segments.end());
  const auto encoded = model.tokenizer->EncodeSegments(last, /*add_special_tokens=*/false);
  if (!encoded.ok() || encoded->size() >= prompt_tokens) return 0;
  return static_cast<int32_t>(encoded->size());
}

// Finds the client's last text in the prompt: what the template writes behind it does not come
// again when the conversation goes on, and in its place other prompts have another text.
void FindLastText(const ServedModel& model, const std::vector<TextSegment>& segments,
                  ChatPrompt* prompt) {
  size_t end = segments.size();
  while (end > 0 && segments[end - 1].from_template) --end;
  size_t begin = end;
  while (begin > 0 && !segments[begin - 1].from_template) --begin;
  const size_t prompt_tokens = prompt->token_ids.size();
  if (end > 0) prompt->opening_tokens = TokensFrom(model, segments, end, prompt_tokens);
  prompt->last_text_tokens = TokensFrom(model, segments, begin, prompt_tokens);
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

absl::StatusOr<SplitJson> ReadChatBody(std::string_view text, const JsonLimits& limits) {
  absl::StatusOr<SplitJson> body =
      ParseSplit(text, "the request body", limits,
                 {kMessages, kArguments, kTools, "tool_choice", "system", "input", "text",
                  "output_config", "output_format", "response_format", "structured_outputs",
                  "guided_json", "guided_regex", "guided_choice", "guided_grammar"});
  if (!absl::IsOutOfRange(body.status())) return body;
  return FieldError(kMessages, std::string(body.status().message()));
}

absl::StatusOr<RenderedChat> RenderChat(const ServedModel& model, const Ordered& conversation,
                                        const ChatPromptOptions& options,
                                        int64_t now_unix_seconds) {
  const Ordered& messages = Member(conversation, kMessages);
  const Ordered& arguments = Member(conversation, kArguments);
  if (!model.chat_template.has_value()) {
    const std::string why = model.chat_refusal.empty()
                                ? absl::StrCat("the model '", model.name, "' has no chat template")
                                : absl::StrCat("the chat template of the model '", model.name,
                                               "' cannot be used: ", model.chat_refusal);
    return FieldError("messages", absl::StrCat(why,
                                               "; use /v1/completions, or start the server with "
                                               "--chat-template FILE"));
  }
  if (!messages.is_array() || messages.empty()) {
    return FieldError("messages", "messages: an array of at least one message is expected");
  }
  if (absl::Status s = CheckArguments(arguments); !s.ok()) return s;
  const CallIds ids = model.call_format == nullptr ? CallIds::kOpenAi : model.call_format->ids;
  absl::StatusOr<Ordered> changed = ToTemplateMessages(messages, *model.chat_template, ids);
  if (!changed.ok()) return changed.status();
  Ordered context = {{"messages", *std::move(changed)},
                     {"add_generation_prompt", options.add_generation_prompt},
                     {"chat_template_kwargs", arguments}};
  const ChatTemplate& chat_template = model.chat_template->chat_template;
  if (options.show_tools) context[kTools] = Member(conversation, kTools);
  AddThinkingArguments(model, options, context);
  absl::StatusOr<std::vector<TextSegment>> segments =
      options.continue_final_message
          ? RenderOpenTurn(chat_template, std::move(context), now_unix_seconds)
          : chat_template.RenderOrdered(context, now_unix_seconds);
  if (!segments.ok()) {
    const absl::Status& status = segments.status();
    return FieldOf(status).empty() ? FieldError("messages", std::string(status.message())) : status;
  }
  for (const TextSegment& segment : *segments) {
    if (!options.must_fit) break;
    if (absl::Status s = CheckMayFit(model, kMessages, segment.text); !s.ok()) return s;
  }
  const PromptThinking at_end = ThinkingAtEnd(model.thinking, *segments);
  RenderedChat chat{*std::move(segments), at_end};
  AddAnswerStart(model, options.answer_start, chat.thinking, chat.segments);
  return chat;
}

bool TakesReasoningEffort(const ServedModel& model, const std::string& effort) {
  if (!model.chat_template.has_value()) return false;
  if (!model.chat_template->chat_template.Names("reasoning_effort")) return false;
  const Ordered chat = {{kMessages, Ordered::array({{{"role", "user"}, {"content", "x"}}})}};
  ChatPromptOptions options;
  options.enable_thinking = true;
  options.reasoning_effort = effort;
  return RenderChat(model, chat, options, /*now_unix_seconds=*/0).ok();
}

absl::StatusOr<ChatPrompt> EncodeChat(const ServedModel& model, const Ordered& conversation,
                                      const ChatPromptOptions& options, int64_t now_unix_seconds) {
  const absl::StatusOr<RenderedChat> chat =
      RenderChat(model, conversation, options, now_unix_seconds);
  if (!chat.ok()) return chat.status();
  absl::StatusOr<std::vector<int32_t>> encoded =
      model.tokenizer->EncodeSegments(chat->segments, options.add_special_tokens);
  if (!encoded.ok()) return encoded.status();
  ChatPrompt prompt{*std::move(encoded), chat->thinking};
  FindLastText(model, chat->segments, &prompt);
  return prompt;
}

}  // namespace tessera::coordinator
