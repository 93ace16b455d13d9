#include "coordinator/api/front_door.h"

#include <algorithm>
#include <mutex>
#include <random>
#include <type_traits>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/emulated_kind.h"

namespace tessera::coordinator {
namespace {
constexpr char kFieldPayload[] = "tessera/field";
constexpr char kCodePayload[] = "tessera/code";

std::string Payload(const absl::Status& status, const char* url) {
  const auto payload = status.GetPayload(url);
  return payload.has_value() ? std::string(*payload) : "";
}

void AddSequence(std::vector<int32_t> ids, std::vector<std::vector<int32_t>>& sequences) {
  const bool known = std::find(sequences.begin(), sequences.end(), ids) != sequences.end();
  if (!ids.empty() && !known) sequences.push_back(std::move(ids));
}

}  // namespace

absl::Status FieldError(std::string_view field, std::string_view message) {
  absl::Status status = absl::InvalidArgumentError(std::string(message));
  status.SetPayload(kFieldPayload, absl::Cord(std::string(field)));
  return status;
}

std::string FieldOf(const absl::Status& status) { return Payload(status, kFieldPayload); }

absl::Status WithErrorCode(absl::Status status, std::string_view code) {
  status.SetPayload(kCodePayload, absl::Cord(std::string(code)));
  return status;
}

std::string ErrorCodeOf(const absl::Status& status) { return Payload(status, kCodePayload); }

void CurrentFingerprint::Set(std::string fingerprint) {
  std::lock_guard lock(mutex_);
  fingerprint_ = std::move(fingerprint);
}

std::string CurrentFingerprint::Get() const {
  std::lock_guard lock(mutex_);
  return fingerprint_;
}

std::string SystemFingerprint(std::string_view build_version, std::string_view model_fingerprint,
                              std::string_view data_type) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const std::string_view part : {build_version, model_fingerprint, data_type}) {
    for (const unsigned char c : part) hash = (hash ^ c) * 1099511628211u;
    hash *= 1099511628211u;  // as a zero byte between parts
  }
  const bool rehearsed = model_fingerprint == kRehearsalFingerprint;
  return absl::StrFormat("%sfp_%016x", rehearsed ? "rehearsal-" : "", hash);
}

absl::Status ModelNotServed(std::string_view asked, std::span<const std::string> served) {
  std::string names;
  for (const std::string& name : served)
    absl::StrAppend(&names, names.empty() ? "'" : ", '", name, "'");
  absl::Status status = absl::NotFoundError(
      absl::StrCat("the model '", std::string(asked),
                   "' is not served here; served: ", names.empty() ? "none" : names));
  status.SetPayload(kFieldPayload, absl::Cord("model"));
  return WithErrorCode(std::move(status), "model_not_found");
}

absl::Status CheckModelName(const ServedModel& model, std::string_view asked) {
  if (asked.empty() || asked == model.name) return absl::OkStatus();
  const std::vector<std::string>& others = model.other_names;
  if (std::find(others.begin(), others.end(), asked) != others.end()) return absl::OkStatus();
  std::vector<std::string> served = {model.name};
  served.insert(served.end(), others.begin(), others.end());
  return ModelNotServed(asked, served);
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

std::vector<int32_t> IdsWithinText(const Tokenizer& tokenizer, const std::string& text,
                                   bool parse_special_tokens) {
  absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(
      "\n" + text, {.add_special_tokens = false, .parse_special_tokens = parse_special_tokens});
  if (!ids.ok()) return {};
  size_t size = 0;
  auto first = ids->end();
  while (first != ids->begin() && size < text.size()) size += tokenizer.TokenBytes(*--first).size();
  std::vector<int32_t> within(first, ids->end());
  std::string spelled;
  for (int32_t id : within) spelled += tokenizer.TokenBytes(id);
  return spelled == text ? within : std::vector<int32_t>();
}

void BanSuppressed(const ServedModel& model, GenerationRequest& request) {
  for (const int32_t id : model.defaults.suppress_tokens) {
    if (id < model.tokenizer->vocabulary_size()) AddSequence({id}, request.bad_words);
  }
}

absl::Status AddBadWord(const ServedModel& model, const std::string& word,
                        GenerationRequest& request) {
  const std::string bare = word.substr(std::min(word.find_first_not_of(' '), word.size()));
  if (bare.empty()) return FieldError("bad_words", "bad_words: a word is empty");
  for (const std::string& form : {bare, " " + bare}) {
    absl::StatusOr<std::vector<int32_t>> alone =
        model.tokenizer->Encode(form, {.add_special_tokens = false});
    if (!alone.ok())
      return FieldError("bad_words", "bad_words: " + std::string(alone.status().message()));
    AddSequence(*std::move(alone), request.bad_words);
    AddSequence(IdsWithinText(*model.tokenizer, form, /*parse_special_tokens=*/true),
                request.bad_words);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const ServedModel& model,
                                                  const std::optional<std::string>& text,
                                                  bool add_special_tokens) {
  const Tokenizer& tokenizer = *model.tokenizer;
  if (text.has_value()) {
    absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(
        *text, {.add_special_tokens = add_special_tokens, .parse_special_tokens = true});
    if (!ids.ok()) return FieldError("prompt", std::string(ids.status().message()));
    if (!ids->empty()) return ids;
  }
  std::optional<int32_t> begin;
  if (!tokenizer.adds_bos()) begin = tokenizer.TokenId("<|endoftext|>");
  if (!begin.has_value()) begin = tokenizer.bos_id();
  if (begin.has_value()) return std::vector<int32_t>{*begin};
  return FieldError("prompt",
                    "the prompt is empty, and the model's tokenizer has neither a bos_token nor "
                    "<|endoftext|> to begin a document with: give text or token ids");
}

std::string EchoedPrompt(const ServedModel& model, const std::optional<std::string>& sent,
                         const std::vector<int32_t>& prompt, bool cut) {
  if (!sent.has_value() || cut)
    return model.tokenizer->Decode(prompt, /*skip_special_tokens=*/false);
  return *sent;
}

absl::Status TruncatePrompt(const ServedModel& model, int64_t wanted,
                            std::optional<int64_t> max_tokens, std::vector<int32_t>& prompt) {
  if (wanted < -1 || wanted == 0) {
    return FieldError("truncate_prompt_tokens", "truncate_prompt_tokens: must be -1 or at least 1");
  }
  int64_t kept = wanted;
  if (wanted == -1)
    kept = std::max<int64_t>(1, model.max_model_len_tokens - max_tokens.value_or(1));
  if (static_cast<int64_t>(prompt.size()) > kept) prompt.erase(prompt.begin(), prompt.end() - kept);
  return absl::OkStatus();
}

absl::Status CheckMayFit(const ServedModel& model, std::string_view field, std::string_view text) {
  const int64_t min_tokens = model.tokenizer->MinTokens(text);
  if (min_tokens <= model.max_model_len_tokens) return absl::OkStatus();
  return WithErrorCode(
      FieldError(field,
                 absl::StrCat("This model's maximum context length is ", model.max_model_len_tokens,
                              " tokens. However, a text of ", text.size(), " bytes is at least ",
                              min_tokens, " tokens. Please reduce the length of the prompt.")),
      "context_length_exceeded");
}

absl::Status FitToContext(const ServedModel& model, std::optional<int64_t> wanted_max_tokens,
                          GenerationRequest& request) {
  const int64_t prompt = static_cast<int64_t>(request.prompt_token_ids.size());
  if (prompt == 0) return FieldError("prompt", "the prompt is empty: it needs at least one token");
  for (int32_t id : request.prompt_token_ids) {
    if (id >= 0 && id < model.tokenizer->vocabulary_size()) continue;
    return FieldError("prompt", absl::StrCat("token id ", id, " is not in the vocabulary of ",
                                             model.tokenizer->vocabulary_size(), " tokens"));
  }
  const int64_t room = model.max_model_len_tokens - prompt;
  const int64_t wanted = wanted_max_tokens.value_or(std::max<int64_t>(room, 1));
  if (wanted > room) {
    return WithErrorCode(
        FieldError(wanted_max_tokens.has_value() && room > 0 ? "max_tokens" : "prompt",
                   absl::StrCat("This model's maximum context length is ",
                                model.max_model_len_tokens, " tokens. However, you requested ",
                                prompt + wanted, " tokens (", prompt, " in the prompt, ", wanted,
                                " in the completion). Please reduce the length of the prompt or "
                                "completion.")),
        "context_length_exceeded");
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
