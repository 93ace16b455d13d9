#include "coordinator/api/front_door.h"

#include <algorithm>
#include <mutex>
#include <random>
#include <type_traits>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::coordinator {
namespace {
constexpr char kFieldPayload[] = "tessera/field";
}

absl::Status FieldError(std::string_view field, std::string_view message) {
  absl::Status status = absl::InvalidArgumentError(std::string(message));
  status.SetPayload(kFieldPayload, absl::Cord(std::string(field)));
  return status;
}

std::string FieldOf(const absl::Status& status) {
  const auto field = status.GetPayload(kFieldPayload);
  return field.has_value() ? std::string(*field) : "";
}

absl::Status CheckModelName(const ServedModel& model, std::string_view asked) {
  if (asked.empty() || asked == model.name) return absl::OkStatus();
  absl::Status status = absl::NotFoundError(absl::StrCat(
      "the model '", std::string(asked), "' is not served here; '", model.name, "' is"));
  status.SetPayload(kFieldPayload, absl::Cord("model"));
  return status;
}

SamplingOptions DefaultSampling(const GenerationDefaults& defaults) {
  SamplingOptions sampling;
  auto take = [](const auto& value, auto& target) {
    if (value.has_value()) target = static_cast<std::remove_reference_t<decltype(target)>>(*value);
  };
  take(defaults.temperature, sampling.temperature);
  take(defaults.top_p, sampling.top_p);
  take(defaults.min_p, sampling.min_p);
  take(defaults.top_k, sampling.top_k);
  take(defaults.repetition_penalty, sampling.repetition_penalty);
  return sampling;
}

absl::Status FitToContext(const ServedModel& model, std::optional<int64_t> wanted_max_tokens,
                          GenerationRequest& request) {
  const int64_t prompt = static_cast<int64_t>(request.prompt_token_ids.size());
  if (prompt == 0) return FieldError("prompt", "the prompt is empty: one token at least is needed");
  for (int32_t id : request.prompt_token_ids) {
    if (id >= 0 && id < model.tokenizer->vocabulary_size()) continue;
    return FieldError("prompt", absl::StrCat("token id ", id, " is not in the vocabulary of ",
                                             model.tokenizer->vocabulary_size(), " tokens"));
  }
  const int64_t room = model.max_model_len_tokens - prompt;
  const int64_t wanted = wanted_max_tokens.value_or(std::max<int64_t>(room, 1));
  if (wanted > room) {
    return FieldError(wanted_max_tokens.has_value() && room > 0 ? "max_tokens" : "prompt",
                      absl::StrCat("this model's context is ", model.max_model_len_tokens,
                                   " tokens; the prompt has ", prompt, " and ", wanted,
                                   " more are asked for: shorten the prompt or lower max_tokens"));
  }
  request.max_tokens = static_cast<int32_t>(wanted);
  if (request.min_tokens <= request.max_tokens) return absl::OkStatus();
  return FieldError("min_tokens", absl::StrCat("min_tokens is ", request.min_tokens,
                                               ", max_tokens only ", request.max_tokens));
}

uint64_t DrawSeed() {
  static std::mutex mutex;
  static std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  std::lock_guard lock(mutex);
  return generator();
}

std::string DrawId() {
  return absl::StrFormat("%016x%08x", DrawSeed(), static_cast<uint32_t>(DrawSeed()));
}

std::string RequestIdOr(std::string_view asked) {
  const bool fit =
      !asked.empty() && asked.size() <= 128 &&
      std::all_of(asked.begin(), asked.end(), [](char c) { return c > 0x20 && c < 0x7F; });
  return fit ? std::string(asked) : DrawId();
}

}  // namespace tessera::coordinator
