#include "coordinator/http_door/token_endpoints.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"
#include "coordinator/api/chat_prompt.h"
#include "coordinator/api/chat_tools.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;

// How the prompt of a chat of the same fields is made.
absl::StatusOr<ChatPromptOptions> ReadPromptOptions(BodyReader& reader, const Json& conversation,
                                                    const ServedModel& model,
                                                    std::optional<bool> add_special_tokens) {
  absl::StatusOr<ChatPromptOptions> how =
      ReadChatPromptOptions(reader.Bool("add_generation_prompt"),
                            reader.Bool("continue_final_message"), add_special_tokens);
  const std::optional<bool> enable_thinking = reader.Bool("enable_thinking");
  const std::optional<std::string> effort = reader.String("reasoning_effort");
  reader.Object("chat_template_kwargs");
  const absl::StatusOr<ChatTools> tools = ReadChatTools(model, conversation, std::nullopt);
  if (!reader.status().ok()) return reader.status();
  if (!tools.ok()) return tools.status();
  if (!how.ok()) return how;
  how->show_tools = tools->offered;
  how->answer_start = tools->call_start;
  how->enable_thinking = enable_thinking;
  how->reasoning_effort = effort;
  return how;
}

absl::StatusOr<std::vector<int32_t>> Tokens(BodyReader& reader, const Json& conversation,
                                            const ServedModel& model, int64_t now_unix_seconds) {
  const std::optional<bool> add_special_tokens = reader.Bool("add_special_tokens");
  const absl::StatusOr<ChatPromptOptions> how =
      ReadPromptOptions(reader, conversation, model, add_special_tokens);
  const std::optional<std::string> prompt = reader.String("prompt");
  const bool has_messages = reader.Find("messages") != nullptr;
  if (has_messages && prompt.has_value()) reader.Fail("prompt", "give it or messages, not both");
  if (!has_messages && !prompt.has_value()) reader.Fail("prompt", "missing");
  if (!reader.status().ok()) return reader.status();
  if (!how.ok()) return how.status();
  if (has_messages) {
    absl::StatusOr<ChatPrompt> chat = EncodeChat(model, conversation, *how, now_unix_seconds);
    if (!chat.ok()) return chat.status();
    return std::move(chat->token_ids);
  }
  absl::StatusOr<std::vector<int32_t>> ids = model.tokenizer->Encode(
      *prompt,
      {.add_special_tokens = add_special_tokens.value_or(true), .parse_special_tokens = true});
  if (!ids.ok()) return FieldError("prompt", std::string(ids.status().message()));
  return ids;
}

// The token's text; null where there is none.
Json TextOf(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  return id.has_value() ? Json(tokenizer.TokenText(*id)) : Json(nullptr);
}

}  // namespace

absl::StatusOr<TokenAnswer> AnswerTokenize(const nlohmann::json& body, const Json& conversation,
                                           const ServedModel& model, int64_t now_unix_seconds) {
  BodyReader reader(body, TokenizeFields());
  if (absl::Status s = CheckModelName(model, reader.String("model").value_or("")); !s.ok())
    return s;
  reader.CheckUnread();
  const bool spelled = reader.Bool("return_token_strs").value_or(false);
  const absl::StatusOr<std::vector<int32_t>> ids =
      Tokens(reader, conversation, model, now_unix_seconds);
  if (!ids.ok()) return ids.status();
  Json answer = {
      {"count", ids->size()}, {"max_model_len", model.max_model_len_tokens}, {"tokens", *ids}};
  if (spelled) {
    answer["token_strs"] = Json::array();
    for (int32_t id : *ids) answer["token_strs"].push_back(model.tokenizer->TokenText(id));
  }
  return TokenAnswer{std::move(answer), reader.Ignored()};
}

absl::StatusOr<TokenAnswer> AnswerDetokenize(const nlohmann::json& body, const ServedModel& model) {
  BodyReader reader(body, DetokenizeFields());
  if (absl::Status s = CheckModelName(model, reader.String("model").value_or("")); !s.ok())
    return s;
  if (reader.Find("tokens") == nullptr) reader.Fail("tokens", "missing");
  const std::vector<int32_t> ids = reader.TokenIds("tokens");
  for (int32_t id : ids) {
    if (id < model.tokenizer->vocabulary_size()) continue;
    reader.Fail("tokens", absl::StrCat("id ", id, " is not in the vocabulary of ",
                                       model.tokenizer->vocabulary_size(), " tokens"));
    break;
  }
  if (!reader.status().ok()) return reader.status();
  return TokenAnswer{{{"prompt", model.tokenizer->Decode(ids, /*skip_special_tokens=*/false)}},
                     reader.Ignored()};
}

absl::StatusOr<TokenAnswer> AnswerApplyTemplate(const nlohmann::json& body,
                                                const Json& conversation, const ServedModel& model,
                                                int64_t now_unix_seconds) {
  BodyReader reader(body, ApplyTemplateFields());
  if (absl::Status s = CheckModelName(model, reader.String("model").value_or("")); !s.ok())
    return s;
  reader.CheckUnread();
  if (reader.Find("messages") == nullptr) reader.Fail("messages", "missing");
  const absl::StatusOr<ChatPromptOptions> how =
      ReadPromptOptions(reader, conversation, model, std::nullopt);
  if (!how.ok()) return how.status();
  const absl::StatusOr<RenderedChat> chat = RenderChat(model, conversation, *how, now_unix_seconds);
  if (!chat.ok()) return chat.status();
  std::string prompt;
  for (const TextSegment& segment : chat->segments) prompt += segment.text;
  return TokenAnswer{{{"prompt", std::move(prompt)}}, reader.Ignored()};
}

Json TokenizerInfo(const ServedModel& model) {
  const Tokenizer& tokenizer = *model.tokenizer;
  Json chat_template = nullptr;
  if (model.chat_template.has_value()) chat_template = model.chat_template->chat_template.source();
  return {{"vocab_size", tokenizer.vocabulary_size()},
          {"model_max_length", model.max_model_len_tokens},
          {"bos_token", TextOf(tokenizer, tokenizer.bos_id())},
          {"eos_token", TextOf(tokenizer, tokenizer.eos_id())},
          {"pad_token", nullptr},
          {"add_bos_token", tokenizer.adds_bos()},
          {"chat_template", std::move(chat_template)}};
}

}  // namespace tessera::coordinator
