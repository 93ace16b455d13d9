#include "coordinator/api/openai_request.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"
#include "coordinator/api/chat_request.h"
#include "coordinator/api/infill.h"
#include "coordinator/api/structured_output.h"
#include "coordinator/tokenizer/text/utf8.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

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
  set(s.temperature, reader.Number("temperature"));
  set(s.top_p, reader.Number("top_p"));
  set(s.min_p, reader.Number("min_p"));
  if (const auto top_k = reader.Integer("top_k"))
    s.top_k = static_cast<int32_t>(std::max<int64_t>(0, *top_k));
  set(s.repetition_penalty, reader.Number("repetition_penalty"));
  set(s.presence_penalty, reader.Number("presence_penalty"));
  set(s.frequency_penalty, reader.Number("frequency_penalty"));
  ReadLogitBias(reader, model.tokenizer->vocabulary_size(), s);
  const auto seed = reader.Integer("seed");
  s.seed = seed.has_value() ? static_cast<uint64_t>(*seed) : DrawSeed();
  s.seed_given = seed.has_value();
  return s;
}

// Ids of the vocabulary.
std::vector<int32_t> ReadKnownIds(BodyReader& reader, const char* name, int32_t vocabulary) {
  std::vector<int32_t> ids = reader.TokenIds(name);
  for (int32_t id : ids) {
    if (id >= vocabulary)
      reader.Fail(name, absl::StrCat(id, " is not a token id below ", vocabulary));
  }
  return ids;
}

// What ends an answer, and what must not be in it.
void ReadLimitsOfText(BodyReader& reader, const ServedModel& model, GenerationRequest& request) {
  const int32_t vocabulary = model.tokenizer->vocabulary_size();
  request.stop_strings = reader.Strings("stop");
  for (const std::string& stop : request.stop_strings) {
    if (stop.empty()) reader.Fail("stop", "a stop string is empty");
  }
  request.stop_token_ids = ReadKnownIds(reader, "stop_token_ids", vocabulary);
  request.allowed_token_ids = ReadKnownIds(reader, "allowed_token_ids", vocabulary);
  const nlohmann::json* allowed = reader.Find("allowed_token_ids");
  if (allowed != nullptr && request.allowed_token_ids.empty())
    reader.Fail("allowed_token_ids", "at least one token id is needed");
  BanSuppressed(model, request);
  for (const std::string& word : reader.Strings("bad_words")) {
    absl::Status added = AddBadWord(model, word, request);
    if (!added.ok()) reader.Fail("bad_words", "a word is empty or not UTF-8");
  }
}

void ReadStreamOptions(BodyReader& reader, OpenAiCall& call) {
  const nlohmann::json* options = reader.Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    reader.Fail("stream_options", "an object is expected");
    return;
  }
  if (!call.stream) reader.Fail("stream_options", "only with stream: true");
  BodyReader inner(*options, StreamOptionFields());
  call.include_usage = inner.Bool("include_usage").value_or(false);
  call.continuous_usage =
      inner.Bool("continuous_usage_stats").value_or(false) && call.include_usage;
  for (const std::string& name : inner.Ignored())
    call.ignored_fields.push_back("stream_options." + name);
  if (!inner.status().ok()) reader.Fail("stream_options", std::string(inner.status().message()));
}

// Everything but prompt, max_tokens and logprobs, which the endpoints read in their own ways.
GenerationRequest ReadGeneration(BodyReader& reader, const ServedModel& model, OpenAiCall& call) {
  GenerationRequest request;
  call.ignored_fields = reader.Ignored();
  request.sampling = ReadSampling(reader, model);
  request.choice_count = static_cast<int32_t>(reader.Integer("n").value_or(1));
  if (const auto best_of = reader.Integer("best_of")) {
    if (*best_of > request.choice_count) reader.Fail("best_of", "more than n is not supported yet");
    if (*best_of < request.choice_count) {
      reader.Fail("best_of", absl::StrCat("must be at least n, which is ", request.choice_count));
    }
  }
  ReadLimitsOfText(reader, model, request);
  request.include_stop_string = reader.Bool("include_stop_str_in_output").value_or(false);
  request.skip_special_tokens = reader.Bool("skip_special_tokens").value_or(true);
  request.ignore_eos = reader.Bool("ignore_eos").value_or(false);
  request.min_tokens = static_cast<int32_t>(reader.Integer("min_tokens").value_or(0));
  request.cache_salt = reader.String("cache_salt").value_or("");
  request.priority = static_cast<int32_t>(reader.Integer("priority").value_or(0));
  const auto prompt_logprobs = reader.Integer("prompt_logprobs");
  request.prompt_logprobs = static_cast<int32_t>(prompt_logprobs.value_or(-1));
  call.show_prompt_logprobs = prompt_logprobs.has_value();
  call.return_token_ids = reader.Bool("return_token_ids").value_or(false);
  call.timings = reader.Bool("timings").value_or(false);
  call.return_tokens_as_ids = reader.Bool("return_tokens_as_token_ids").value_or(false);
  call.stream = reader.Bool("stream").value_or(false);
  if (call.stream && call.show_prompt_logprobs) {
    reader.Fail("prompt_logprobs", "only without stream");
  }
  ReadStreamOptions(reader, call);
  call.choices_per_prompt = request.choice_count;
  return request;
}

// What every endpoint begins with: the model, fields that are refused, and the generation.
absl::StatusOr<GenerationRequest> ReadShared(BodyReader& reader, const ServedModel& model,
                                             OpenAiCall& call) {
  if (absl::Status s = CheckModelName(model, reader.String("model").value_or("")); !s.ok())
    return s;
  reader.CheckUnread();
  return ReadGeneration(reader, model, call);
}

// truncate_prompt_tokens, then the check against the context.
absl::Status FitPrompt(const ServedModel& model, std::optional<int64_t> truncate_to,
                       std::optional<int64_t> max_tokens, GenerationRequest& request) {
  if (truncate_to.has_value()) {
    absl::Status cut = TruncatePrompt(model, *truncate_to, max_tokens, request.prompt_token_ids);
    if (!cut.ok()) return cut;
  }
  return FitToContext(model, max_tokens, request);
}

struct Prompt {
  std::optional<std::string> text;  // as sent; none: as ids
  std::vector<int32_t> ids;
};

struct PromptOptions {
  bool add_special_tokens = true;
  bool is_cut = false;  // to the context, so that it may be of any length
};

absl::Status AddPrompt(const ServedModel& model, std::optional<std::string> text,
                       PromptOptions options, std::vector<Prompt>& prompts) {
  if (text.has_value() && !options.is_cut) {
    if (absl::Status s = CheckMayFit(model, "prompt", *text); !s.ok()) return s;
  }
  absl::StatusOr<std::vector<int32_t>> ids = EncodePrompt(model, text, options.add_special_tokens);
  if (!ids.ok()) return ids.status();
  prompts.push_back({text.has_value() ? std::move(text) : "", *std::move(ids)});
  return absl::OkStatus();
}

// Nothing, a string, strings, ids, or lists of ids.
absl::StatusOr<std::vector<Prompt>> ReadPrompts(BodyReader& reader, const ServedModel& model,
                                                PromptOptions options) {
  const nlohmann::json* prompt = reader.Find("prompt");
  std::vector<Prompt> prompts;
  if (prompt == nullptr || prompt->is_string()) {
    std::optional<std::string> text;
    if (prompt != nullptr) text = prompt->get<std::string>();
    absl::Status added = AddPrompt(model, std::move(text), options, prompts);
    if (!added.ok()) return added;
    return prompts;
  }
  if (!prompt->is_array() || prompt->empty() || prompt->size() > (1u << 24)) {
    return FieldError(
        "prompt",
        "prompt: a string, an array of strings, token ids or arrays of token ids is expected");
  }
  if ((*prompt)[0].is_number()) {
    prompts.push_back({std::nullopt, reader.TokenIds("prompt")});
    if (!reader.status().ok()) return reader.status();
    return prompts;
  }
  if (prompt->size() > static_cast<size_t>(kMaxPrompts)) {
    return FieldError(
        "prompt", absl::StrCat("prompt: at most ", kMaxPrompts, " prompts go into one request"));
  }
  for (const nlohmann::json& item : *prompt) {
    if (item.is_string()) {
      absl::Status added = AddPrompt(model, item.get<std::string>(), options, prompts);
      if (!added.ok()) return added;
      continue;
    }
    absl::StatusOr<std::vector<int32_t>> ids = TokenIdsOf(item, "prompt");
    if (!ids.ok()) return ids.status();
    prompts.push_back({std::nullopt, *std::move(ids)});
  }
  return prompts;
}

// The form that a completion's answer is held to, where one is asked for.
absl::Status ReadForm(BodyReader& reader, const Ordered& ordered, OpenAiCall& call,
                      GenerationRequest& request) {
  absl::StatusOr<StructuredOutput> output = ReadStructuredOutput(reader, ordered);
  if (!output.ok()) return output.status();
  call.not_enforced = std::move(output->not_enforced);
  if (output->grammar.has_value()) request.grammar = output->grammar->Text();
  return reader.status();
}

// Where there is a suffix, the prompt becomes one for what stands before it.
absl::Status AddSuffix(const ServedModel& model, const std::string& suffix,
                       const PromptOptions& options, Prompt& prompt, GenerationRequest& request) {
  if (suffix.empty()) return absl::OkStatus();
  if (!prompt.text.has_value()) return FieldError("suffix", "suffix: only with a prompt of text");
  if (options.is_cut) return FieldError("suffix", "suffix: not with truncate_prompt_tokens");
  absl::StatusOr<Infill> infill =
      EncodeInfill(model, *prompt.text, suffix, options.add_special_tokens);
  if (!infill.ok()) return infill.status();
  prompt.ids = std::move(infill->prompt);
  request.stop_token_ids.insert(request.stop_token_ids.end(), infill->stop_ids.begin(),
                                infill->stop_ids.end());
  return absl::OkStatus();
}

}  // namespace

std::string OpenAiCall::DrawAnswerId(std::string_view prefix) const {
  return resume_id.empty() ? std::string(prefix) + DrawId() : resume_id;
}

absl::StatusOr<OpenAiCall> ReadCompletionCall(const nlohmann::json& body, const Ordered& ordered,
                                              const ServedModel& model) {
  if (!body.is_object()) return FieldError("", "the body must be a JSON object");
  BodyReader reader(body, CompletionFields());
  OpenAiCall call;
  absl::StatusOr<GenerationRequest> read = ReadShared(reader, model, call);
  if (!read.ok()) return read.status();
  GenerationRequest request = *std::move(read);
  call.echo = reader.Bool("echo").value_or(false);
  call.top_logprobs = static_cast<int32_t>(reader.Integer("logprobs").value_or(-1));
  request.top_logprobs = call.top_logprobs;
  if (call.echo && call.top_logprobs >= 0) {
    request.prompt_logprobs = std::max(request.prompt_logprobs, call.top_logprobs);
  }
  const int64_t max_tokens = reader.Integer("max_tokens").value_or(16);
  const std::optional<int64_t> truncate_to = reader.Integer("truncate_prompt_tokens");
  const PromptOptions how = {reader.Bool("add_special_tokens").value_or(true),
                             truncate_to.has_value()};
  const std::string suffix = reader.String("suffix").value_or("");
  if (!reader.status().ok()) return reader.status();
  if (absl::Status s = ReadForm(reader, ordered, call, request); !s.ok()) return s;
  absl::StatusOr<std::vector<Prompt>> prompts = ReadPrompts(reader, model, how);
  if (!prompts.ok()) return prompts.status();
  if (call.timings && prompts->size() > 1) {
    return FieldError("timings", "timings: only for one prompt per request");
  }
  if (static_cast<int64_t>(prompts->size()) * call.choices_per_prompt > kMaxPrompts) {
    return FieldError("n", absl::StrCat("n: prompts times choices are at most ", kMaxPrompts));
  }
  for (Prompt& prompt : *prompts) {
    GenerationRequest one = request;
    if (absl::Status s = AddSuffix(model, suffix, how, prompt, one); !s.ok()) return s;
    const size_t sent_tokens = prompt.ids.size();
    one.prompt_token_ids = std::move(prompt.ids);
    if (absl::Status s = FitPrompt(model, truncate_to, max_tokens, one); !s.ok()) return s;
    if (call.echo) {
      one.prompt_text = EchoedPrompt(model, prompt.text, one.prompt_token_ids,
                                     one.prompt_token_ids.size() < sent_tokens);
    }
    call.prompts.push_back(std::move(one));
  }
  return call;
}

absl::StatusOr<OpenAiCall> ReadFimCall(const nlohmann::json& body, const Ordered& ordered,
                                       const ServedModel& model) {
  if (!body.is_object()) return FieldError("", "the body must be a JSON object");
  BodyReader reader(body, FimFields());
  OpenAiCall call;
  call.chat = true;
  absl::StatusOr<GenerationRequest> read = ReadShared(reader, model, call);
  if (!read.ok()) return read.status();
  GenerationRequest request = *std::move(read);
  if (const auto seed = reader.Integer("random_seed")) {
    request.sampling.seed = static_cast<uint64_t>(*seed);
    request.sampling.seed_given = true;
  }
  const std::optional<int64_t> max_tokens = reader.Integer("max_tokens");
  const std::optional<int64_t> truncate_to = reader.Integer("truncate_prompt_tokens");
  const PromptOptions how = {reader.Bool("add_special_tokens").value_or(true),
                             truncate_to.has_value()};
  const std::string suffix = reader.String("suffix").value_or("");
  std::optional<std::string> text = reader.String("prompt");
  if (!text.has_value()) reader.Fail("prompt", "missing");
  if (!reader.status().ok()) return reader.status();
  if (absl::Status s = ReadForm(reader, ordered, call, request); !s.ok()) return s;
  std::vector<Prompt> prompts;
  if (absl::Status s = AddPrompt(model, std::move(text), how, prompts); !s.ok()) return s;
  if (absl::Status s = AddSuffix(model, suffix, how, prompts[0], request); !s.ok()) return s;
  request.prompt_token_ids = std::move(prompts[0].ids);
  if (absl::Status s = FitPrompt(model, truncate_to, max_tokens, request); !s.ok()) return s;
  call.prompts.push_back(std::move(request));
  return call;
}

absl::StatusOr<OpenAiCall> ReadChatCall(const nlohmann::json& body, const Ordered& conversation,
                                        const ServedModel& model, int64_t now_unix_seconds,
                                        PromptFit fit) {
  if (!body.is_object()) return FieldError("", "the body must be a JSON object");
  BodyReader reader(body, ChatFields());
  OpenAiCall call;
  call.chat = true;
  absl::StatusOr<GenerationRequest> read = ReadShared(reader, model, call);
  if (!read.ok()) return read.status();
  GenerationRequest request = *std::move(read);
  const bool logprobs = reader.Bool("logprobs").value_or(false);
  const auto top_logprobs = reader.Integer("top_logprobs");
  if (top_logprobs.has_value() && !logprobs)
    reader.Fail("top_logprobs", "only with logprobs: true");
  if (logprobs) call.top_logprobs = static_cast<int32_t>(top_logprobs.value_or(0));
  request.top_logprobs = call.top_logprobs;
  std::optional<int64_t> max_tokens = reader.Integer("max_completion_tokens");
  const std::optional<int64_t> older_name = reader.Integer("max_tokens");
  if (!max_tokens.has_value()) max_tokens = older_name;
  if (older_name.has_value() && older_name != max_tokens)
    reader.Fail("max_tokens", "says another number than max_completion_tokens: give one of them");
  const std::optional<int64_t> truncate_to = reader.Integer("truncate_prompt_tokens");
  const absl::StatusOr<ChatPromptOptions> prompt = ReadChatPromptOptions(
      reader.Bool("add_generation_prompt"), reader.Bool("continue_final_message"),
      reader.Bool("add_special_tokens"));
  reader.Object("chat_template_kwargs");
  ChatRequest chat;
  if (prompt.ok()) chat.prompt = *prompt;
  chat.prompt.must_fit = fit == PromptFit::kContext && !truncate_to.has_value();
  chat.prompt.enable_thinking = reader.Bool("enable_thinking");
  chat.prompt.reasoning_effort = reader.String("reasoning_effort");
  chat.parallel_tool_calls = reader.Bool("parallel_tool_calls");
  chat.thinking_token_budget = reader.Integer("thinking_token_budget");
  if (reader.Find("messages") == nullptr) reader.Fail("messages", "missing");
  if (!reader.status().ok()) return reader.status();
  if (!prompt.ok()) return prompt.status();
  absl::StatusOr<StructuredOutput> output = ReadStructuredOutput(reader, conversation);
  if (!output.ok()) return output.status();
  if (!reader.status().ok()) return reader.status();
  chat.has_form = output->grammar.has_value();
  chat.has_own_grammar = chat.has_form && output->grammar->is_own();
  absl::StatusOr<PreparedChat> prepared =
      PrepareChat(model, conversation, std::move(chat), now_unix_seconds, request);
  if (!prepared.ok()) return prepared.status();
  call.answer_format = std::move(prepared->answer_format);
  call.not_enforced = std::move(prepared->not_enforced);
  call.not_enforced.insert(call.not_enforced.end(), output->not_enforced.begin(),
                           output->not_enforced.end());
  if (output->grammar.has_value() && !prepared->demands_call)
    request.grammar = output->grammar->Text(prepared->start);
  if (fit == PromptFit::kContext) {
    if (absl::Status s = FitPrompt(model, truncate_to, max_tokens, request); !s.ok()) return s;
  }
  call.prompts.push_back(std::move(request));
  return call;
}

}  // namespace tessera::coordinator
