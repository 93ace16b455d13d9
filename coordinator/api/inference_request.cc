#include "coordinator/api/inference_request.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/api/openai_request.h"

namespace tessera::coordinator {
namespace {

absl::Status CheckRange(const char* field, double value, double lowest, double highest) {
  if (value >= lowest && value <= highest) return absl::OkStatus();
  return FieldError(
      field, absl::StrCat(field, ": must be within ", lowest, " and ", highest, ", it is ", value));
}

// Value of an optional field, or the default that is there.
template <typename T, typename U>
void Take(bool given, T value, U& target) {
  if (given) target = static_cast<U>(value);
}

absl::Status CheckOptions(const v1::GenerationOptions& o, const GenerationRequest& r,
                          int min_max_tokens) {
  constexpr double kHuge = 1e30;
  const SamplingOptions& s = r.sampling;
  for (const absl::Status& status : {
           CheckRange("temperature", s.temperature, 0, 1000),
           CheckRange("top_p", s.top_p, 1e-9, 1),
           CheckRange("min_p", s.min_p, 0, 1),
           CheckRange("top_k", s.top_k, 0, kHuge),
           CheckRange("repetition_penalty", s.repetition_penalty, kMinRepetitionPenalty,
                      kMaxRepetitionPenalty),
           CheckRange("presence_penalty", s.presence_penalty, -2, 2),
           CheckRange("frequency_penalty", s.frequency_penalty, -2, 2),
           CheckRange("n", r.choice_count, 1, kMaxChoices),
           CheckRange("logprobs", r.top_logprobs, -1, kMaxTopLogprobs),
           CheckRange("prompt_logprobs", r.prompt_logprobs, -1, kMaxTopLogprobs),
           CheckRange("min_tokens", r.min_tokens, 0, kHuge),
           CheckRange("max_tokens", o.has_max_tokens() ? o.max_tokens() : 1, min_max_tokens, kHuge),
           CheckRange("stop", o.stop_size(), 0, kMaxStopStrings),
       }) {
    if (!status.ok()) return status;
  }
  for (const std::string& stop : o.stop()) {
    if (stop.empty()) return FieldError("stop", "stop: a stop string is empty");
  }
  return absl::OkStatus();
}

absl::StatusOr<GenerationRequest> ReadOptions(const v1::GenerationOptions& o,
                                              const ServedModel& model, int min_max_tokens) {
  GenerationRequest r;
  SamplingOptions& s = r.sampling;
  s = DefaultSampling(model.defaults);
  Take(o.has_temperature(), o.temperature(), s.temperature);
  Take(o.has_top_p(), o.top_p(), s.top_p);
  Take(o.has_top_k(), o.top_k() == -1 ? 0 : o.top_k(), s.top_k);
  Take(o.has_min_p(), o.min_p(), s.min_p);
  Take(o.has_presence_penalty(), o.presence_penalty(), s.presence_penalty);
  Take(o.has_frequency_penalty(), o.frequency_penalty(), s.frequency_penalty);
  Take(o.has_repetition_penalty(), o.repetition_penalty(), s.repetition_penalty);
  s.seed = o.has_seed() ? o.seed() : DrawSeed();
  for (const auto& [id, bias] : o.logit_bias()) {
    if (id < 0 || id >= model.tokenizer->vocabulary_size() || !(bias >= -100 && bias <= 100)) {
      return FieldError("logit_bias",
                        absl::StrCat("logit_bias: token id ", id, " with ", bias,
                                     ": ids are within the vocabulary, values from -100 to 100"));
    }
    s.logit_bias.emplace_back(id, bias);
  }
  Take(o.has_n(), o.n(), r.choice_count);
  r.stop_strings.assign(o.stop().begin(), o.stop().end());
  for (int32_t id : o.stop_token_ids()) {
    if (id < 0 || id >= model.tokenizer->vocabulary_size()) {
      return FieldError("stop_token_ids",
                        absl::StrCat("stop_token_ids: ", id, " is not a token id below ",
                                     model.tokenizer->vocabulary_size()));
    }
    r.stop_token_ids.push_back(id);
  }
  Take(o.has_logprobs(), o.logprobs(), r.top_logprobs);
  Take(o.has_prompt_logprobs(), o.prompt_logprobs(), r.prompt_logprobs);
  r.ignore_eos = o.ignore_eos();
  r.min_tokens = o.min_tokens();
  Take(o.has_skip_special_tokens(), o.skip_special_tokens(), r.skip_special_tokens);
  r.include_stop_string = o.include_stop_string();
  r.cache_salt = o.cache_salt();
  r.priority = o.priority();
  if (absl::Status status = CheckOptions(o, r, min_max_tokens); !status.ok()) return status;
  return r;
}

std::optional<int64_t> MaxTokens(const v1::GenerationOptions& o) {
  return o.has_max_tokens() ? std::optional<int64_t>(o.max_tokens()) : std::nullopt;
}

}  // namespace

absl::StatusOr<GenerationRequest> ReadCompletion(const v1::CompletionRequest& request,
                                                 const ServedModel& model) {
  if (absl::Status s = CheckModelName(model, request.model()); !s.ok()) return s;
  absl::StatusOr<GenerationRequest> r =
      ReadOptions(request.options(), model, /*min_max_tokens=*/request.echo() ? 0 : 1);
  if (!r.ok()) return r;
  if (request.prompt_case() == v1::CompletionRequest::PROMPT_NOT_SET) {
    return FieldError("prompt", "the prompt is missing: give text or tokens");
  }
  if (request.has_tokens()) {
    r->prompt_token_ids.assign(request.tokens().ids().begin(), request.tokens().ids().end());
  } else {
    absl::StatusOr<std::vector<int32_t>> ids =
        model.tokenizer->Encode(request.text(), EncodeOptions());
    if (!ids.ok()) return FieldError("text", std::string(ids.status().message()));
    r->prompt_token_ids = *std::move(ids);
  }
  r->request_id = RequestIdOr(request.request_id());
  absl::Status fits = FitToContext(model, MaxTokens(request.options()).value_or(16), *r);
  if (!fits.ok()) return fits;
  return r;
}

absl::StatusOr<GenerationRequest> ReadChat(const v1::ChatRequest& request, const ServedModel& model,
                                           int64_t now_unix_seconds) {
  if (absl::Status s = CheckModelName(model, request.model()); !s.ok()) return s;
  absl::StatusOr<GenerationRequest> r = ReadOptions(request.options(), model, /*min_max_tokens=*/1);
  if (!r.ok()) return r;
  nlohmann::ordered_json conversation = {{"messages", nlohmann::ordered_json::array()}};
  for (const v1::ChatMessage& message : request.messages()) {
    conversation["messages"].push_back({{"role", message.role()}, {"content", message.content()}});
  }
  const bool add_generation_prompt =
      !request.has_add_generation_prompt() || request.add_generation_prompt();
  absl::StatusOr<std::vector<int32_t>> ids =
      EncodeChat(model, conversation, add_generation_prompt, now_unix_seconds);
  if (!ids.ok()) return ids.status();
  r->prompt_token_ids = *std::move(ids);
  r->request_id = RequestIdOr(request.request_id());
  if (absl::Status fits = FitToContext(model, MaxTokens(request.options()), *r); !fits.ok())
    return fits;
  return r;
}

}  // namespace tessera::coordinator
