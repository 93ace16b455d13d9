#include "coordinator/api/openai_reply.h"

#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/api/prompt_echo.h"
#include "coordinator/http/http_status.h"
#include "coordinator/tokenizer/text/utf8.h"

namespace tessera::coordinator {
namespace {

// Fields stand in the order they are written: people read streams.
using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}
std::string Data(const Json& json) { return absl::StrCat("data: ", Dump(json), "\n\n"); }

// A token as clients show it; one that is part of a character is spelled in bytes, as OpenAI does.
std::string Spelling(const Tokenizer& tokenizer, int32_t id, bool as_id) {
  if (as_id) return absl::StrCat("token_id:", id);
  std::string bytes = tokenizer.TokenBytes(id);
  if (bytes.empty()) return tokenizer.TokenText(id);
  if (FindInvalidUtf8(bytes) == std::string_view::npos) return bytes;
  std::string spelled = "bytes:";
  for (unsigned char c : bytes) absl::StrAppendFormat(&spelled, "\\x%02x", c);
  return spelled;
}

Json ChatLogprob(const Tokenizer& tokenizer, const TokenChance& chance, bool as_id) {
  Json bytes = Json::array();
  for (unsigned char c : tokenizer.TokenBytes(chance.token_id))
    bytes.push_back(static_cast<int>(c));
  return {{"token", Spelling(tokenizer, chance.token_id, as_id)},
          {"logprob", chance.logprob},
          {"bytes", bytes}};
}

// Joined they are the message, as OpenAI's clients expect: without the token that ended it.
Json ChatLogprobs(const Tokenizer& tokenizer, const std::vector<PositionChances>& chances,
                  bool ends_with_stop_token, bool as_id) {
  Json content = Json::array();
  const size_t told = chances.size() - (ends_with_stop_token && !chances.empty() ? 1 : 0);
  for (const PositionChances& position : std::span(chances).first(told)) {
    Json entry = ChatLogprob(tokenizer, position.chosen, as_id);
    entry["top_logprobs"] = Json::array();
    for (const TokenChance& top : position.top)
      entry["top_logprobs"].push_back(ChatLogprob(tokenizer, top, as_id));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// A token as it stands in the text, at `place`.
std::string SpellingAt(const Tokenizer& tokenizer, int32_t id, const TokenPlace& place,
                       bool as_id) {
  std::string spelling = Spelling(tokenizer, id, as_id);
  if (place.without_space && spelling.starts_with(' ')) spelling.erase(0, 1);
  return spelling;
}

// `places`: of the ids.
Json CompletionLogprobs(const Tokenizer& tokenizer, bool as_id, const std::vector<int32_t>& ids,
                        const std::vector<TokenPlace>& places,
                        const std::vector<PositionChances>& chances) {
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(),
       offsets = Json::array();
  for (size_t i = 0; i < ids.size() && i < chances.size(); ++i) {
    const std::string spelling = SpellingAt(tokenizer, ids[i], places[i], as_id);
    tokens.push_back(spelling);
    offsets.push_back(places[i].offset);
    if (!chances[i].has_chosen) {
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    logprobs.push_back(chances[i].chosen.logprob);
    Json top = Json::object();
    for (const TokenChance& t : chances[i].top) {
      // Clients find the chosen token among these by its spelling.
      if (t.token_id != ids[i]) top[Spelling(tokenizer, t.token_id, as_id)] = t.logprob;
    }
    top[spelling] = chances[i].chosen.logprob;
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

// vLLM's shape: one object per position, token id -> what is known of it; null at the first.
Json PromptLogprobs(const Tokenizer& tokenizer, const std::vector<PositionChances>& positions) {
  Json all = Json::array();
  auto entry = [&](const TokenChance& chance) {
    return Json{{"logprob", chance.logprob},
                {"rank", chance.rank},
                {"decoded_token", Spelling(tokenizer, chance.token_id, /*as_id=*/false)}};
  };
  for (const PositionChances& position : positions) {
    if (!position.has_chosen) {
      all.push_back(nullptr);
      continue;
    }
    Json one = Json::object();
    one[std::to_string(position.chosen.token_id)] = entry(position.chosen);
    for (const TokenChance& top : position.top) one[std::to_string(top.token_id)] = entry(top);
    all.push_back(std::move(one));
  }
  return all;
}

Json FinishJson(Finish finish, bool has_calls = false) {
  if (finish == Finish::kNone) return nullptr;
  if (finish == Finish::kError) return "error";
  if (finish == Finish::kLength) return "length";
  return has_calls ? "tool_calls" : "stop";
}

// Stands for a text where a chunk is made once for many; nothing else in a chunk is such a string.
constexpr char kAnyText[] = "\x01";
constexpr std::string_view kAnyTextDumped = R"("\u0001")";

AnswerEnd EndOf(Finish finish) {
  return finish == Finish::kStop ? AnswerEnd::kStop : AnswerEnd::kCut;
}

// Both names by which clients know it.
void AddReasoning(const std::string& text, Json& message) {
  message["reasoning_content"] = text;
  message["reasoning"] = text;
}

Json MessageJson(const AnswerMessage& answer) {
  Json message = {{"role", "assistant"}, {"content", answer.text}, {"refusal", nullptr}};
  if (answer.text.empty() && !answer.calls.empty()) message["content"] = nullptr;
  if (!answer.thinking.empty()) AddReasoning(answer.thinking, message);
  for (const ToolCall& call : answer.calls) {
    message["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return message;
}

Json DeltaJson(const MessageDelta& piece) {
  Json delta = Json::object();
  switch (piece.kind) {
    case MessageDelta::Kind::kText: delta["content"] = piece.text; break;
    case MessageDelta::Kind::kThinking: AddReasoning(piece.text, delta); break;
    case MessageDelta::Kind::kCall:
      delta["tool_calls"] =
          Json::array({{{"index", piece.call},
                        {"id", piece.id},
                        {"type", "function"},
                        {"function", {{"name", piece.text}, {"arguments", ""}}}}});
      break;
    case MessageDelta::Kind::kArguments:
      delta["tool_calls"] =
          Json::array({{{"index", piece.call}, {"function", {{"arguments", piece.text}}}}});
      break;
  }
  return delta;
}

Json UsageJson(const GenerationUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.thinking_tokens}}}};
}

Json TimingsJson(const GenerationUsage& usage) {
  const GenerationTimings& timings = usage.timings;
  Json moved = nullptr;
  if (timings.kv_transfer.has_value()) {
    moved = {{"bytes", timings.kv_transfer->bytes},
             {"seconds", timings.kv_transfer->seconds},
             {"hidden_share", timings.kv_transfer->hidden_share},
             {"transport", timings.kv_transfer->transport},
             {"codec", timings.kv_transfer->codec}};
  }
  Json drafts = nullptr;
  if (timings.drafts.steps > 0) {
    drafts = {{"steps", timings.drafts.steps},
              {"tokens", timings.drafts.tokens},
              {"accepted_tokens", timings.drafts.accepted_tokens},
              {"tokens_per_step", static_cast<double>(timings.drafts.tokens) /
                                      static_cast<double>(timings.drafts.steps)}};
  }
  Json rate = nullptr;
  if (timings.decode_seconds > 0) {
    rate = static_cast<double>(timings.decode_tokens) / timings.decode_seconds;
  }
  return {{"queue_seconds", timings.queue_seconds},
          {"prefill",
           {{"replica", timings.prefill_replica},
            {"seconds", timings.prefill_seconds},
            {"prompt_tokens", usage.prompt_tokens},
            {"cached_tokens", usage.cached_tokens}}},
          {"kv_transfer", std::move(moved)},
          {"decode",
           {{"replica", timings.decode_replica},
            {"seconds", timings.decode_seconds},
            {"tokens", timings.decode_tokens},
            {"tokens_per_second", std::move(rate)},
            {"drafts", std::move(drafts)}}}};
}

Json StopReason(const std::string& reason, const std::vector<int32_t>& stop_ids) {
  if (reason.empty()) return nullptr;
  for (int32_t id : stop_ids) {
    if (std::to_string(id) == reason) return id;
  }
  return reason;
}

Json ErrorJson(const absl::Status& status) {
  const std::string field = FieldOf(status);
  std::string code = ErrorCodeOf(status);
  if (code.empty() && absl::IsUnauthenticated(status)) code = "invalid_api_key";
  return {{"message", std::string(status.message())},
          {"type", std::string(ToHttpError(status.code()).type)},
          {"param", field.empty() ? Json(nullptr) : Json(field)},
          {"code", code.empty() ? Json(nullptr) : Json(code)}};
}

}  // namespace

OpenAiError ToOpenAiError(const absl::Status& status) {
  return {ToHttpError(status.code()).status, Dump({{"error", ErrorJson(status)}})};
}

OpenAiReply::OpenAiReply(const ServedModel& model, const OpenAiCall& call,
                         int64_t created_unix_seconds)
    : model_(model),
      call_(call),
      id_(call.DrawAnswerId(call.chat ? "chatcmpl-" : "cmpl-")),
      created_unix_seconds_(created_unix_seconds),
      choices_(call.prompts.size() * call.choices_per_prompt),
      prompt_logprobs_(call.prompts.size()) {}

void OpenAiReply::AddPromptLogprobs(int prompt, std::vector<PositionChances> positions) {
  prompt_logprobs_[prompt] = std::move(positions);
}

void OpenAiReply::Add(int prompt, const ChoiceEvent& event) {
  Choice& choice = choices_[ChoiceIndex(prompt, event.choice)];
  choice.text += event.text;
  choice.token_ids.insert(choice.token_ids.end(), event.token_ids.begin(), event.token_ids.end());
  choice.logprobs.insert(choice.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
  choice.ends_with_stop_token |= event.ends_with_stop_token;
  if (event.finish != Finish::kNone) {
    choice.finish = event.finish;
    choice.stop_reason = event.stop_reason;
    choice.error = event.error;
  }
}

void OpenAiReply::AddUsage(const GenerationUsage& usage) {
  usage_.prompt_tokens += usage.prompt_tokens;
  usage_.completion_tokens += usage.completion_tokens;
  usage_.cached_tokens += usage.cached_tokens;
  usage_.thinking_tokens += usage.thinking_tokens;
  usage_.timings = usage.timings;  // asked for with one prompt only
}

ChoiceEvent OpenAiReply::EchoEvent(int prompt, int32_t choice) const {
  const GenerationRequest& request = call_.prompts[prompt];
  ChoiceEvent echo;
  echo.choice = choice;
  echo.text = request.prompt_text;
  if (call_.top_logprobs >= 0) {
    echo.token_ids = request.prompt_token_ids;
    echo.logprobs = prompt_logprobs_[prompt];
  }
  return echo;
}

Json OpenAiReply::WholeLogprobs(const ChoiceEvent& echo, const Choice& choice) const {
  const Tokenizer& tokenizer = *model_.tokenizer;
  std::vector<int32_t> ids = echo.token_ids;
  std::vector<PositionChances> chances = echo.logprobs;
  std::vector<TokenPlace> places = PlacesInPrompt(tokenizer, echo.text, ids);
  int64_t offset = CountCharacters(echo.text);
  const std::vector<TokenPlace> answer =
      PlacesInAnswer(tokenizer, call_.prompts[0].skip_special_tokens, choice.token_ids, offset);
  ids.insert(ids.end(), choice.token_ids.begin(), choice.token_ids.end());
  places.insert(places.end(), answer.begin(), answer.end());
  chances.insert(chances.end(), choice.logprobs.begin(), choice.logprobs.end());
  return CompletionLogprobs(tokenizer, call_.return_tokens_as_ids, ids, places, chances);
}

Json OpenAiReply::PieceLogprobs(const ChoiceEvent& event, bool is_echo, Choice& choice) const {
  const Tokenizer& tokenizer = *model_.tokenizer;
  std::vector<TokenPlace> places;
  if (is_echo) {
    places = PlacesInPrompt(tokenizer, event.text, event.token_ids);
    choice.text_offset = CountCharacters(event.text);
  } else {
    places = PlacesInAnswer(tokenizer, call_.prompts[0].skip_special_tokens, event.token_ids,
                            choice.text_offset);
  }
  if (event.logprobs.empty()) return nullptr;
  return CompletionLogprobs(tokenizer, call_.return_tokens_as_ids, event.token_ids, places,
                            event.logprobs);
}

std::string OpenAiReply::Body() const {
  const Tokenizer& tokenizer = *model_.tokenizer;
  Json all = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    const int prompt = static_cast<int>(i) / call_.choices_per_prompt;
    Json one = {{"index", i}};
    bool has_calls = false;
    if (call_.chat) {
      MessageBuilder builder(call_.answer_format);
      builder.Append(choice.text);
      builder.Finish(EndOf(choice.finish));
      one["message"] = MessageJson(builder.message());
      has_calls = !builder.message().calls.empty();
      one["logprobs"] = call_.top_logprobs < 0
                            ? Json(nullptr)
                            : ChatLogprobs(tokenizer, choice.logprobs, choice.ends_with_stop_token,
                                           call_.return_tokens_as_ids);
    } else {
      const ChoiceEvent echo = call_.echo ? EchoEvent(prompt, 0) : ChoiceEvent();
      one["text"] = echo.text + choice.text;
      one["logprobs"] = call_.top_logprobs < 0 ? Json(nullptr) : WholeLogprobs(echo, choice);
    }
    one["finish_reason"] = FinishJson(choice.finish, has_calls);
    one["stop_reason"] = StopReason(choice.stop_reason, call_.prompts[prompt].stop_token_ids);
    if (choice.finish == Finish::kError) one["error"] = ErrorJson(choice.error);
    if (call_.return_token_ids) {
      one["token_ids"] = choice.token_ids;
      if (!call_.chat) one["prompt_token_ids"] = call_.prompts[prompt].prompt_token_ids;
    }
    if (call_.show_prompt_logprobs && !call_.chat) {
      one["prompt_logprobs"] = PromptLogprobs(tokenizer, prompt_logprobs_[prompt]);
    }
    all.push_back(std::move(one));
  }
  Json body = {{"id", id_},
               {"object", call_.chat ? "chat.completion" : "text_completion"},
               {"created", created_unix_seconds_},
               {"model", model_.name},
               {"system_fingerprint", model_.system_fingerprint->Get()},
               {"choices", std::move(all)},
               {"usage", UsageJson(usage_)}};
  if (call_.timings) body["timings"] = TimingsJson(usage_);
  if (call_.chat && call_.return_token_ids)
    body["prompt_token_ids"] = call_.prompts[0].prompt_token_ids;
  if (call_.chat && call_.show_prompt_logprobs) {
    body["prompt_logprobs"] = PromptLogprobs(tokenizer, prompt_logprobs_[0]);
  }
  return Dump(body);
}

std::string OpenAiReply::ChunkFor(int index, const ChoiceEvent& event, Json delta, bool is_echo) {
  const Tokenizer& tokenizer = *model_.tokenizer;
  const GenerationRequest& prompt = call_.prompts[index / call_.choices_per_prompt];
  Choice& choice = choices_[index];
  Json one = {{"index", index}};
  if (call_.chat) {
    one["delta"] = std::move(delta);
    one["logprobs"] = event.logprobs.empty()
                          ? Json(nullptr)
                          : ChatLogprobs(tokenizer, event.logprobs, event.ends_with_stop_token,
                                         call_.return_tokens_as_ids);
  } else {
    one["text"] = event.text;
    one["logprobs"] = PieceLogprobs(event, is_echo, choice);
  }
  const bool opens = !std::exchange(choice.opened, true);
  const bool has_calls = choice.message != nullptr && !choice.message->message().calls.empty();
  one["finish_reason"] = FinishJson(event.finish, has_calls);
  one["stop_reason"] = StopReason(event.stop_reason, prompt.stop_token_ids);
  if (event.finish == Finish::kError) one["error"] = ErrorJson(event.error);
  // As in a plain answer: the prompt's ids are in a field of their own, once, and never here.
  if (call_.return_token_ids) {
    one["token_ids"] = is_echo ? std::vector<int32_t>() : event.token_ids;
    if (opens && !call_.chat) one["prompt_token_ids"] = prompt.prompt_token_ids;
  }
  Json chunk = {{"id", id_},
                {"object", call_.chat ? "chat.completion.chunk" : "text_completion"},
                {"created", created_unix_seconds_},
                {"model", model_.name},
                {"system_fingerprint", model_.system_fingerprint->Get()},
                {"choices", Json::array({std::move(one)})}};
  if (opens && call_.chat && call_.return_token_ids)
    chunk["prompt_token_ids"] = prompt.prompt_token_ids;
  // As vLLM has it: a completion's chunks always name it, a chat's where usage was asked for.
  if (!call_.chat || call_.include_usage) chunk["usage"] = nullptr;
  if (call_.continuous_usage) {
    chunk["usage"] =
        UsageJson({.prompt_tokens = static_cast<int64_t>(prompt.prompt_token_ids.size()),
                   .completion_tokens = choice.tokens});
  }
  return Data(chunk);
}

bool OpenAiReply::IsTextOnly(int index, const ChoiceEvent& event) const {
  return choices_[index].opened && event.finish == Finish::kNone && event.logprobs.empty() &&
         call_.top_logprobs < 0 && !call_.return_token_ids && !call_.continuous_usage;
}

std::string OpenAiReply::TextChunk(int index, const std::string& text) {
  Choice& choice = choices_[index];
  std::string fingerprint = model_.system_fingerprint->Get();
  if (choice.text_chunk.empty() || choice.fingerprint != fingerprint) {
    ChoiceEvent any;
    any.text = kAnyText;
    Json delta = Json::object();
    delta["content"] = kAnyText;
    choice.text_chunk = ChunkFor(index, any, std::move(delta));
    choice.text_at = choice.text_chunk.rfind(kAnyTextDumped);
    choice.fingerprint = std::move(fingerprint);
  }
  std::string chunk = choice.text_chunk;
  chunk.replace(choice.text_at, kAnyTextDumped.size(), Dump(text));
  return chunk;
}

std::string OpenAiReply::OpeningChunks() {
  std::string chunks;
  if (!call_.chat) return chunks;
  for (int i = 0; i < static_cast<int>(choices_.size()); ++i) {
    choices_[i].message = std::make_unique<MessageBuilder>(call_.answer_format);
    chunks += ChunkFor(i, ChoiceEvent(), {{"role", "assistant"}, {"content", ""}});
  }
  return chunks;
}

std::string OpenAiReply::Chunk(int prompt, const ChoiceEvent& event) {
  const int index = ChoiceIndex(prompt, event.choice);
  std::string chunks;
  if (!choices_[index].opened && call_.echo)
    chunks += ChunkFor(index, EchoEvent(prompt, event.choice), nullptr, /*is_echo=*/true);
  choices_[index].tokens += static_cast<int64_t>(event.token_ids.size());
  if (call_.chat) return chunks + ChatChunks(index, event);
  return chunks + (IsTextOnly(index, event) ? TextChunk(index, event.text)
                                            : ChunkFor(index, event, nullptr));
}

std::string OpenAiReply::ChatChunks(int index, const ChoiceEvent& event) {
  MessageBuilder& message = *choices_[index].message;
  std::vector<MessageDelta> deltas = message.Append(event.text);
  if (event.finish != Finish::kNone) {
    for (MessageDelta& delta : message.Finish(EndOf(event.finish)))
      deltas.push_back(std::move(delta));
  }
  std::string chunks;
  ChoiceEvent rest = event;  // what the tokens carry goes with their first piece
  rest.finish = Finish::kNone;
  rest.stop_reason.clear();
  for (const MessageDelta& delta : deltas) {
    const ChoiceEvent carried = std::exchange(rest, ChoiceEvent());
    const bool text_only = delta.kind == MessageDelta::Kind::kText && IsTextOnly(index, carried);
    chunks += text_only ? TextChunk(index, delta.text) : ChunkFor(index, carried, DeltaJson(delta));
  }
  // Text may be held that the tokens' ids and logprobs need not wait for.
  const bool wants_tokens = call_.return_token_ids || call_.continuous_usage;
  const bool says_more =
      !event.logprobs.empty() ||
      (!event.token_ids.empty() && (call_.answer_format == nullptr || wants_tokens));
  if (deltas.empty() && says_more) chunks += ChunkFor(index, rest, Json::object());
  if (event.finish == Finish::kNone) return chunks;
  // The last chunk has the finish_reason and an empty delta.
  ChoiceEvent last;
  last.finish = event.finish;
  last.stop_reason = event.stop_reason;
  last.error = event.error;
  return chunks + ChunkFor(index, last, Json::object());
}

std::string OpenAiReply::ErrorChunk(const absl::Status& status) const {
  return absl::StrCat("data: ", ToOpenAiError(status).body, "\n\n");
}

std::string OpenAiReply::ClosingChunks() {
  std::string chunks;
  if (call_.include_usage || call_.timings) {
    Json chunk = {{"id", id_},
                  {"object", call_.chat ? "chat.completion.chunk" : "text_completion"},
                  {"created", created_unix_seconds_},
                  {"model", model_.name},
                  {"system_fingerprint", model_.system_fingerprint->Get()},
                  {"choices", Json::array()}};
    if (call_.include_usage) chunk["usage"] = UsageJson(usage_);
    if (call_.timings) chunk["timings"] = TimingsJson(usage_);
    chunks += Data(chunk);
  }
  return chunks + "data: [DONE]\n\n";
}

}  // namespace tessera::coordinator
