#include "coordinator/api/openai_request.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"
#include "coordinator/tokenizer/json_fields.h"
#include "coordinator/tokenizer/utf8.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr char kMessages[] = "messages";
constexpr char kArguments[] = "chat_template_kwargs";

// Features that clients of both endpoints know and that come later.
void RefuseUnsupportedFields(BodyReader& reader) {
  for (const char* name :
       {"tools", "functions", "function_call", "structured_outputs", "guided_json", "guided_regex",
        "guided_choice", "guided_grammar", "audio", "modalities", "prediction", "use_beam_search",
        "kv_transfer_params"}) {
    reader.RefuseUnsupported(name);
  }
  reader.RefuseUnsupported("tool_choice", "none");
  // Accepted, without meaning here.
  reader.String("user");
  reader.Object("metadata");
  reader.Bool("store");
  reader.String("service_tier");
  reader.RefuseUnsupported("suffix");
  if (const nlohmann::json* format = reader.Find("response_format")) {
    const bool text = format->is_object() && format->value("type", nlohmann::json()) == "text";
    if (!text) reader.Fail("response_format", "only {\"type\": \"text\"} is supported yet");
  }
}

void ReadLogitBias(BodyReader& reader, int32_t vocabulary, SamplingOptions& sampling) {
  const nlohmann::json* field = reader.Find("logit_bias");
  if (field == nullptr) return;
  if (!field->is_object()) {
    reader.Fail("logit_bias",
                absl::StrCat("an object of token ids is expected, not ", field->type_name()));
    return;
  }
  for (const auto& [key, value] : field->items()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocabulary) {
      reader.Fail("logit_bias",
                  absl::StrCat(Excerpt(key), " is not a token id below ", vocabulary));
      return;
    }
    if (!value.is_number() || !(value.get<double>() >= -100 && value.get<double>() <= 100)) {
      reader.Fail("logit_bias", "values are numbers from -100 to 100");
      return;
    }
    sampling.logit_bias.emplace_back(id, value.get<float>());
  }
}

SamplingOptions ReadSampling(BodyReader& reader, const ServedModel& model) {
  SamplingOptions s = DefaultSampling(model.defaults);
  auto set = [](float& target, std::optional<double> value) {
    if (value.has_value()) target = static_cast<float>(*value);
  };
  set(s.temperature, reader.Number("temperature", 0, 1000));
  if (const auto top_p = reader.Number("top_p", 0, 1)) {
    if (*top_p == 0) reader.Fail("top_p", "must be above 0 and at most 1");
    s.top_p = static_cast<float>(*top_p);
  }
  set(s.min_p, reader.Number("min_p", 0, 1));
  if (const auto top_k = reader.Integer("top_k", -1, kMaxInt32))
    s.top_k = static_cast<int32_t>(std::max<int64_t>(0, *top_k));
  set(s.repetition_penalty,
      reader.Number("repetition_penalty", kMinRepetitionPenalty, kMaxRepetitionPenalty));
  set(s.presence_penalty, reader.Number("presence_penalty", -2, 2));
  set(s.frequency_penalty, reader.Number("frequency_penalty", -2, 2));
  ReadLogitBias(reader, model.tokenizer->vocabulary_size(), s);
  const auto seed = reader.Integer("seed", std::numeric_limits<int64_t>::min(),
                                   std::numeric_limits<int64_t>::max());
  s.seed = seed.has_value() ? static_cast<uint64_t>(*seed) : DrawSeed();
  return s;
}

// Everything but prompt, max_tokens and logprobs, which the endpoints read in their own ways.
GenerationRequest ReadGeneration(BodyReader& reader, const ServedModel& model, OpenAiCall& call) {
  GenerationRequest request;
  request.sampling = ReadSampling(reader, model);
  request.choice_count = static_cast<int32_t>(reader.Integer("n", 1, kMaxChoices).value_or(1));
  if (const auto best_of = reader.Integer("best_of", 1, kMaxChoices)) {
    if (*best_of > request.choice_count) reader.Fail("best_of", "more than n is not supported yet");
    if (*best_of < request.choice_count) {
      reader.Fail("best_of", absl::StrCat("must be at least n, which is ", request.choice_count));
    }
  }
  request.stop_strings = reader.Strings("stop", kMaxStopStrings);
  for (const std::string& stop : request.stop_strings) {
    if (stop.empty()) reader.Fail("stop", "a stop string is empty");
  }
  request.stop_token_ids = reader.TokenIds("stop_token_ids");
  for (int32_t id : request.stop_token_ids) {
    if (id >= model.tokenizer->vocabulary_size()) {
      reader.Fail("stop_token_ids", absl::StrCat(id, " is not a token id below ",
                                                 model.tokenizer->vocabulary_size()));
    }
  }
  request.include_stop_string = reader.Bool("include_stop_str_in_output").value_or(false);
  request.skip_special_tokens = reader.Bool("skip_special_tokens").value_or(true);
  request.ignore_eos = reader.Bool("ignore_eos").value_or(false);
  request.min_tokens = static_cast<int32_t>(reader.Integer("min_tokens", 0, kMaxInt32).value_or(0));
  request.cache_salt = reader.String("cache_salt").value_or("");
  request.priority =
      static_cast<int32_t>(reader.Integer("priority", -kMaxInt32, kMaxInt32).value_or(0));
  const auto prompt_logprobs = reader.Integer("prompt_logprobs", 0, kMaxTopLogprobs);
  request.prompt_logprobs = static_cast<int32_t>(prompt_logprobs.value_or(-1));
  call.show_prompt_logprobs = prompt_logprobs.has_value();
  call.return_token_ids = reader.Bool("return_token_ids").value_or(false);
  call.stream = reader.Bool("stream").value_or(false);
  if (call.stream && call.show_prompt_logprobs) {
    reader.Fail("prompt_logprobs", "only without stream");
  }
  if (const nlohmann::json* options = reader.Find("stream_options")) {
    if (!options->is_object()) {
      reader.Fail("stream_options", "an object is expected");
    } else if (!call.stream) {
      reader.Fail("stream_options", "only with stream: true");
    } else {
      BodyReader inner(*options);
      call.include_usage = inner.Bool("include_usage").value_or(false);
      if (!inner.status().ok())
        reader.Fail("stream_options", std::string(inner.status().message()));
    }
  }
  call.choices_per_prompt = request.choice_count;
  return request;
}

absl::Status AddPrompt(const ServedModel& model, const std::string& text, bool add_special_tokens,
                       std::vector<std::vector<int32_t>>& prompts) {
  absl::StatusOr<std::vector<int32_t>> ids = model.tokenizer->Encode(
      text, {.add_special_tokens = add_special_tokens, .parse_special_tokens = true});
  if (!ids.ok()) return FieldError("prompt", std::string(ids.status().message()));
  prompts.push_back(*std::move(ids));
  return absl::OkStatus();
}

// A string, strings, ids, or lists of ids.
absl::StatusOr<std::vector<std::vector<int32_t>>> ReadPrompts(BodyReader& reader,
                                                              const ServedModel& model,
                                                              bool add_special_tokens) {
  const nlohmann::json* prompt = reader.Find("prompt");
  if (prompt == nullptr) return FieldError("prompt", "prompt is missing");
  std::vector<std::vector<int32_t>> prompts;
  if (prompt->is_string()) {
    absl::Status added =
        AddPrompt(model, prompt->get_ref<const std::string&>(), add_special_tokens, prompts);
    if (!added.ok()) return added;
    return prompts;
  }
  if (!prompt->is_array() || prompt->empty() || prompt->size() > (1u << 24)) {
    return FieldError(
        "prompt",
        "prompt: a string, an array of strings, token ids or arrays of token ids is expected");
  }
  if ((*prompt)[0].is_number()) {
    prompts.push_back(reader.TokenIds("prompt"));
    if (!reader.status().ok()) return reader.status();
    return prompts;
  }
  if (prompt->size() > static_cast<size_t>(kMaxPrompts)) {
    return FieldError(
        "prompt", absl::StrCat("prompt: at most ", kMaxPrompts, " prompts go into one request"));
  }
  for (const nlohmann::json& item : *prompt) {
    if (item.is_string()) {
      absl::Status added =
          AddPrompt(model, item.get_ref<const std::string&>(), add_special_tokens, prompts);
      if (!added.ok()) return added;
      continue;
    }
    const nlohmann::json wrapped = {{"prompt", item}};
    BodyReader inner(wrapped);
    prompts.push_back(inner.TokenIds("prompt"));
    if (!inner.status().ok()) return inner.status();
  }
  return prompts;
}

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

}  // namespace

absl::StatusOr<Ordered> ReadConversation(std::string_view text) {
  absl::StatusOr<Ordered> conversation = ParseOrdered(text, "messages", {kMessages, kArguments});
  if (conversation.ok()) return conversation;
  return FieldError(kMessages, std::string(conversation.status().message()));
}

absl::StatusOr<std::vector<int32_t>> EncodeChat(const ServedModel& model,
                                                const Ordered& conversation,
                                                bool add_generation_prompt,
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
  for (const char* own : {"messages", "tools", "add_generation_prompt"}) {
    if (arguments.contains(own)) {
      return FieldError("chat_template_kwargs", absl::StrCat("chat_template_kwargs: '", own,
                                                             "' is a field of the request itself"));
    }
  }
  Ordered context = {{"messages", Ordered::array()},
                     {"add_generation_prompt", add_generation_prompt},
                     {"chat_template_kwargs", arguments}};
  for (size_t i = 0; i < messages.size(); ++i) {
    absl::StatusOr<Ordered> flat = FlatMessage(messages[i], i);
    if (!flat.ok()) return flat.status();
    context["messages"].push_back(*std::move(flat));
  }
  absl::StatusOr<std::vector<TextSegment>> segments =
      model.chat_template->RenderOrdered(context, now_unix_seconds);
  if (!segments.ok()) return FieldError("messages", std::string(segments.status().message()));
  // The template writes its own special tokens.
  return model.tokenizer->EncodeSegments(*segments, /*add_special_tokens=*/false);
}

absl::StatusOr<OpenAiCall> ReadCompletionCall(const nlohmann::json& body,
                                              const ServedModel& model) {
  if (!body.is_object()) return FieldError("", "the body must be a JSON object");
  BodyReader reader(body);
  OpenAiCall call;
  if (absl::Status s = CheckModelName(model, reader.String("model").value_or("")); !s.ok())
    return s;
  RefuseUnsupportedFields(reader);
  if (reader.Find("top_logprobs") != nullptr) {
    reader.Fail("top_logprobs", "a field of chat completions; here logprobs is how many to show");
  }
  GenerationRequest request = ReadGeneration(reader, model, call);
  call.echo = reader.Bool("echo").value_or(false);
  call.top_logprobs =
      static_cast<int32_t>(reader.Integer("logprobs", 0, kMaxTopLogprobs).value_or(-1));
  request.top_logprobs = call.top_logprobs;
  if (call.echo && call.top_logprobs >= 0) {
    request.prompt_logprobs = std::max(request.prompt_logprobs, call.top_logprobs);
  }
  const int64_t max_tokens =
      reader.Integer("max_tokens", call.echo ? 0 : 1, kMaxInt32).value_or(16);
  const bool add_special_tokens = reader.Bool("add_special_tokens").value_or(true);
  if (!reader.status().ok()) return reader.status();
  absl::StatusOr<std::vector<std::vector<int32_t>>> prompts =
      ReadPrompts(reader, model, add_special_tokens);
  if (!prompts.ok()) return prompts.status();
  if (static_cast<int64_t>(prompts->size()) * call.choices_per_prompt > kMaxPrompts) {
    return FieldError("n", absl::StrCat("n: prompts times choices are at most ", kMaxPrompts));
  }
  for (std::vector<int32_t>& ids : *prompts) {
    GenerationRequest one = request;
    one.prompt_token_ids = std::move(ids);
    if (absl::Status s = FitToContext(model, max_tokens, one); !s.ok()) return s;
    call.prompts.push_back(std::move(one));
  }
  return call;
}

absl::StatusOr<OpenAiCall> ReadChatCall(const nlohmann::json& body, const Ordered& conversation,
                                        const ServedModel& model, int64_t now_unix_seconds) {
  if (!body.is_object()) return FieldError("", "the body must be a JSON object");
  BodyReader reader(body);
  OpenAiCall call;
  call.chat = true;
  if (absl::Status s = CheckModelName(model, reader.String("model").value_or("")); !s.ok())
    return s;
  RefuseUnsupportedFields(reader);
  reader.RefuseUnsupported("echo");
  GenerationRequest request = ReadGeneration(reader, model, call);
  const bool logprobs = reader.Bool("logprobs").value_or(false);
  const auto top_logprobs = reader.Integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top_logprobs.has_value() && !logprobs)
    reader.Fail("top_logprobs", "only with logprobs: true");
  if (logprobs) call.top_logprobs = static_cast<int32_t>(top_logprobs.value_or(0));
  request.top_logprobs = call.top_logprobs;
  std::optional<int64_t> max_tokens = reader.Integer("max_completion_tokens", 1, kMaxInt32);
  const std::optional<int64_t> older_name = reader.Integer("max_tokens", 1, kMaxInt32);
  if (!max_tokens.has_value()) max_tokens = older_name;
  const bool add_generation_prompt = reader.Bool("add_generation_prompt").value_or(true);
  reader.Object(kArguments);
  if (reader.Find(kMessages) == nullptr) reader.Fail(kMessages, "missing");
  if (!reader.status().ok()) return reader.status();
  absl::StatusOr<std::vector<int32_t>> ids =
      EncodeChat(model, conversation, add_generation_prompt, now_unix_seconds);
  if (!ids.ok()) return ids.status();
  request.prompt_token_ids = *std::move(ids);
  if (absl::Status s = FitToContext(model, max_tokens, request); !s.ok()) return s;
  call.prompts.push_back(std::move(request));
  return call;
}

}  // namespace tessera::coordinator
