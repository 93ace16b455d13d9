#include "coordinator/api/request_fields.h"

#include <array>
#include <limits>

#include "coordinator/api/front_door.h"
#include "proto/sampling_ranges.h"

namespace tessera::coordinator {
namespace {

using enum FieldKind;

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxChoicesOfText = 10'000;
constexpr std::string_view kLater = "not supported yet";

constexpr RequestField Plain(std::string_view name, FieldKind kind) {
  return {.name = name, .kind = kind};
}
constexpr RequestField Required(std::string_view name, FieldKind kind) {
  return {.name = name, .kind = kind, .required = true};
}
constexpr RequestField NoEffect(std::string_view name, FieldKind kind) {
  return {.name = name, .kind = kind, .no_effect = true};
}
constexpr RequestField Integer(std::string_view name, int64_t lowest, int64_t highest) {
  return {.name = name, .kind = kInteger, .lowest = lowest, .highest = highest};
}
constexpr RequestField Number(std::string_view name, const NumberRange& range) {
  return {.name = name,
          .kind = kNumber,
          .min = range.min,
          .max = range.max,
          .above_min = range.above_min};
}
constexpr RequestField Strings(std::string_view name, int64_t most) {
  return {.name = name, .kind = kStrings, .highest = most};
}
constexpr RequestField Refused(std::string_view name, std::string_view harmless = {},
                               std::string_view reason = kLater) {
  return {.name = name, .kind = kRefused, .harmless = harmless, .reason = reason};
}

// Fields of both endpoints that generate.
constexpr auto kGeneration = std::to_array<RequestField>({
    Plain("model", kString),
    Number("temperature", kTemperatureRange),
    Number("top_p", kTopPRange),
    Number("min_p", kMinPRange),
    Integer("top_k", -1, kMaxInt32),
    Number("repetition_penalty", kRepetitionPenaltyRange),
    Number("presence_penalty", kPenaltyRange),
    Number("frequency_penalty", kPenaltyRange),
    Plain("logit_bias", kLogitBias),
    Plain("allowed_token_ids", kTokenIds),
    Strings("bad_words", kMaxBadWords),
    Integer("seed", -kMaxInt64 - 1, kMaxInt64),
    Integer("n", 1, kMaxChoices),
    Integer("best_of", 1, kMaxChoices),
    Strings("stop", kMaxStopStrings),
    Plain("stop_token_ids", kTokenIds),
    Plain("include_stop_str_in_output", kBool),
    Plain("skip_special_tokens", kBool),
    Plain("ignore_eos", kBool),
    Integer("max_tokens", 0, kMaxInt32),
    Integer("min_tokens", 0, kMaxInt32),
    Integer("truncate_prompt_tokens", -1, kMaxInt32),
    Plain("add_special_tokens", kBool),
    Plain("cache_salt", kString),
    Integer("priority", -kMaxInt32, kMaxInt32),
    Integer("prompt_logprobs", 0, kMaxTopLogprobs),
    Plain("return_token_ids", kBool),
    Plain("timings", kBool),
    Plain("return_tokens_as_token_ids", kBool),
    Plain("stream", kBool),
    Plain("stream_options", kStreamOptions),
    Plain("response_format", kResponseFormat),
    Plain("structured_outputs", kObject),
    Plain("guided_json", kJsonSchema),
    Plain("guided_regex", kString),
    Strings("guided_choice", kMaxChoicesOfText),
    Plain("guided_grammar", kString),
    NoEffect("user", kString),
    NoEffect("metadata", kObject),
    NoEffect("store", kBool),
    NoEffect("service_tier", kString),
    NoEffect("prediction", kObject),  // only how soon the answer comes
    Refused("functions"),
    Refused("function_call"),
    Refused("grammar"),
    Refused("json_schema"),
    Refused("chat_template"),
    Refused("documents"),
    Refused("logits_processors"),
    Refused("audio"),
    Refused("modalities", "text"),
    Refused("use_beam_search"),
    Refused("kv_transfer_params"),
});

template <size_t N, size_t M>
constexpr auto Join(const std::array<RequestField, N>& first,
                    const std::array<RequestField, M>& second) {
  std::array<RequestField, N + M> all;
  size_t at = 0;
  for (const RequestField& field : first) all[at++] = field;
  for (const RequestField& field : second) all[at++] = field;
  return all;
}

constexpr auto kCompletion =
    Join(std::to_array<RequestField>({
             Plain("prompt", kPrompt),
             Plain("suffix", kString),
             Plain("echo", kBool),
             Integer("logprobs", 0, kMaxTopLogprobs),
             Refused("tools", {}, "a field of chat completions"),
             Refused("tool_choice", "none", "a field of chat completions"),
             Refused("top_logprobs", {},
                     "a field of chat completions; here logprobs is how many to show"),
         }),
         kGeneration);

// Mistral's, beside what both endpoints have.
constexpr auto kFim = Join(std::to_array<RequestField>({
                               Required("prompt", kString),
                               Plain("suffix", kString),
                               Integer("random_seed", -kMaxInt64 - 1, kMaxInt64),
                           }),
                           kGeneration);

constexpr auto kChat = Join(std::to_array<RequestField>({
                                Required("messages", kMessages),
                                Plain("tools", kTools),
                                Plain("tool_choice", kToolChoice),
                                Plain("parallel_tool_calls", kBool),
                                Plain("enable_thinking", kBool),
                                Integer("thinking_token_budget", 0, kMaxInt32),
                                Plain("reasoning_effort", kString),
                                Plain("chat_template_kwargs", kObject),
                                Plain("add_generation_prompt", kBool),
                                Plain("continue_final_message", kBool),
                                Plain("logprobs", kBool),
                                Integer("top_logprobs", 0, kMaxTopLogprobs),
                                Integer("max_completion_tokens", 0, kMaxInt32),
                                Refused("echo"),
                                Refused("suffix", {}, "a field of completions"),
                            }),
                            kGeneration);

constexpr std::string_view kNotStored =
    "responses are not stored here: send the whole conversation as input";

// OpenAI's Responses, and vLLM's additions to them.
constexpr auto kResponses = std::to_array<RequestField>({
    Plain("model", kString),
    Required("input", kDocument),
    Plain("instructions", kString),
    Plain("tools", kDocument),
    Plain("tool_choice", kDocument),
    Plain("parallel_tool_calls", kBool),
    Integer("max_tool_calls", 1, kMaxInt32),
    Plain("reasoning", kObject),
    Plain("text", kObject),
    Integer("max_output_tokens", 1, kMaxInt32),
    Integer("thinking_token_budget", 0, kMaxInt32),
    Plain("chat_template_kwargs", kObject),
    Number("temperature", kTemperatureRange),
    Number("top_p", kTopPRange),
    Integer("top_k", -1, kMaxInt32),
    Number("min_p", kMinPRange),
    Number("repetition_penalty", kRepetitionPenaltyRange),
    Number("presence_penalty", kPenaltyRange),
    Number("frequency_penalty", kPenaltyRange),
    Integer("seed", -kMaxInt64 - 1, kMaxInt64),
    Strings("stop", kMaxStopStrings),
    Plain("cache_salt", kString),
    Integer("priority", -kMaxInt32, kMaxInt32),
    Integer("top_logprobs", 0, kMaxTopLogprobs),
    Strings("include", 32),
    Plain("truncation", kString),
    Plain("stream", kBool),
    Plain("store", kBool),
    NoEffect("stream_options", kObject),
    NoEffect("metadata", kObject),
    NoEffect("client_metadata", kObject),
    NoEffect("prompt_cache_key", kString),
    NoEffect("prompt_cache_retention", kString),
    NoEffect("safety_identifier", kString),
    NoEffect("service_tier", kString),
    NoEffect("user", kString),
    Refused("previous_response_id", {}, kNotStored),
    Refused("conversation", {}, kNotStored),
    Refused("background", {}, kNotStored),
    Refused("prompt", {}, "prompt templates are not stored here: send instructions and input"),
    Refused("context_management"),
});

// What the prompt of Anthropic's Messages shows.
constexpr auto kCountTokens = std::to_array<RequestField>({
    Plain("model", kString),
    Required("messages", kDocument),
    Plain("system", kDocument),
    Plain("tools", kDocument),
    Plain("tool_choice", kObject),
    Plain("thinking", kObject),
    Plain("output_config", kObject),
});

constexpr auto kMessagesRequest = Join(std::to_array<RequestField>({
                                           {.name = "max_tokens",
                                            .kind = kInteger,
                                            .lowest = 1,
                                            .highest = kMaxInt32,
                                            .required = true},
                                           Plain("output_format", kObject),
                                           Number("temperature", kTemperatureRange),
                                           Number("top_p", kTopPRange),
                                           Integer("top_k", -1, kMaxInt32),
                                           Strings("stop_sequences", kMaxStopStrings),
                                           Plain("stream", kBool),
                                           NoEffect("metadata", kObject),
                                           NoEffect("service_tier", kString),
                                           NoEffect("context_management", kObject),
                                           NoEffect("cache_control", kObject),
                                           Refused("mcp_servers"),
                                           Refused("container"),
                                       }),
                                       kCountTokens);

constexpr auto kEmbeddings = std::to_array<RequestField>({
    Plain("model", kString),
    Required("input", kPrompt),
    Integer("dimensions", 1, kMaxInt32),
    Plain("encoding_format", kString),
    Integer("truncate_prompt_tokens", -1, kMaxInt32),
    Plain("add_special_tokens", kBool),
    Plain("cache_salt", kString),
    Integer("priority", -kMaxInt32, kMaxInt32),
    NoEffect("user", kString),
});

constexpr auto kRanking = std::to_array<RequestField>({
    Plain("model", kString),
    Plain("instruction", kString),
    Integer("truncate_prompt_tokens", -1, kMaxInt32),
    Plain("cache_salt", kString),
    Integer("priority", -kMaxInt32, kMaxInt32),
    NoEffect("user", kString),
});

constexpr auto kRerank = Join(std::to_array<RequestField>({
                                  Required("query", kString),
                                  Required("documents", kDocument),
                                  Integer("top_n", 1, kMaxInt32),
                                  Plain("return_documents", kBool),
                                  Refused("rank_fields"),
                                  Refused("max_tokens_per_doc"),
                                  Refused("max_chunks_per_doc"),
                              }),
                              kRanking);

constexpr auto kScore = Join(std::to_array<RequestField>({
                                 Required("text_1", kDocument),
                                 Required("text_2", kDocument),
                             }),
                             kRanking);

// What the prompt of a chat is made of, messages aside.
constexpr auto kTemplating = std::to_array<RequestField>({
    Plain("model", kString),
    Plain("tools", kTools),
    Plain("tool_choice", kToolChoice),
    Plain("chat_template_kwargs", kObject),
    Plain("enable_thinking", kBool),
    Plain("reasoning_effort", kString),
    Plain("add_generation_prompt", kBool),
    Plain("continue_final_message", kBool),
    Refused("chat_template"),
    Refused("documents"),
});

constexpr auto kApplyTemplate =
    Join(std::to_array<RequestField>({Required("messages", kMessages)}), kTemplating);

constexpr auto kTokenize = Join(std::to_array<RequestField>({
                                    Plain("prompt", kString),
                                    Plain("messages", kMessages),
                                    Plain("add_special_tokens", kBool),
                                    Plain("return_token_strs", kBool),
                                    Refused("truncate_prompt_tokens"),
                                }),
                                kTemplating);

constexpr auto kDetokenize = std::to_array<RequestField>({
    Plain("model", kString),
    Required("tokens", kTokenIds),
});

constexpr auto kStreamOption = std::to_array<RequestField>({
    Plain("include_usage", kBool),
    Plain("continuous_usage_stats", kBool),
});

}  // namespace

std::span<const RequestField> CompletionFields() { return kCompletion; }
std::span<const RequestField> FimFields() { return kFim; }
std::span<const RequestField> ChatFields() { return kChat; }
std::span<const RequestField> ResponsesFields() { return kResponses; }
std::span<const RequestField> MessagesFields() { return kMessagesRequest; }
std::span<const RequestField> CountTokensFields() { return kCountTokens; }
std::span<const RequestField> EmbeddingsFields() { return kEmbeddings; }
std::span<const RequestField> RerankFields() { return kRerank; }
std::span<const RequestField> ScoreFields() { return kScore; }
std::span<const RequestField> TokenizeFields() { return kTokenize; }
std::span<const RequestField> ApplyTemplateFields() { return kApplyTemplate; }
std::span<const RequestField> DetokenizeFields() { return kDetokenize; }
std::span<const RequestField> StreamOptionFields() { return kStreamOption; }

const RequestField* FindField(std::span<const RequestField> fields, std::string_view name) {
  for (const RequestField& field : fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

}  // namespace tessera::coordinator
