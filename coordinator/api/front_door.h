// What the HTTP and the gRPC front doors share: the served model, and the checks and defaults that
// make a GenerationRequest of what a client asked.
//
// Thread rule: ServedModel is immutable after start; everything here is thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/answer/thinking_format.h"
#include "coordinator/flow/generation.h"
#include "coordinator/jinja/message_forms.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "proto/model/model_folder.h"

namespace tessera::coordinator {

struct CallFormat;

// "fp_" and 16 hex digits: equal where build, checkpoint and data type are. A plan may change the
// data type while requests run. Thread rule: any.
class CurrentFingerprint {
 public:
  void Set(std::string fingerprint);
  std::string Get() const;

 private:
  mutable std::mutex mutex_;
  std::string fingerprint_;
};

// The row of a text's tokens, behind the final norm, that its embedding is.
enum class RowPooling { kLast, kMean, kFirst };

struct EmbeddingRecipe {
  RowPooling pooling = RowPooling::kLast;
  bool normalized = true;  // made of length 1
  std::string refusal;     // why no embeddings are made; empty: they are
};

struct ServedModel {
  std::string name;                                               // --served-model-name, the first
  std::vector<std::string> other_names;                           // the others
  const std::shared_ptr<CurrentFingerprint> system_fingerprint =  // of every answer
      std::make_shared<CurrentFingerprint>();
  std::string folder;
  int64_t max_model_len_tokens = 0;
  int64_t embedding_width = 0;  // of the rows that embeddings are made of
  EmbeddingRecipe embedding;
  int64_t created_unix_seconds = 0;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::optional<ProbedTemplate> chat_template;  // absent: chat is refused, saying so
  std::string chat_refusal;                     // why the model's own template cannot be used
  const CallFormat* call_format = nullptr;      // of tool calls; null: none that is known
  ThinkingFormat thinking;
  GenerationDefaults defaults;  // generation_config.json's: what holds where a client says nothing
};

// Limits that hold at both doors.
inline constexpr int32_t kMaxChoices = 128;
inline constexpr int32_t kMaxTopLogprobs = 20;
// OpenAI has 4; editors that fill in the middle send a dozen.
inline constexpr int32_t kMaxStopStrings = 64;
inline constexpr int32_t kMaxPrompts = 2048;
inline constexpr int32_t kMaxBadWords = 1024;

// InvalidArgument that names the field at fault; FieldOf reads the name back ("" for none).
absl::Status FieldError(std::string_view field, std::string_view message);
std::string FieldOf(const absl::Status& status);

// What OpenAI's clients branch on (error.code): "context_length_exceeded", "model_not_found", ...;
// "" for none.
absl::Status WithErrorCode(absl::Status status, std::string_view code);
std::string ErrorCodeOf(const absl::Status& status);

// As CurrentFingerprint says; "rehearsal-fp_..." where emulated devices answer.
std::string SystemFingerprint(std::string_view build_version, std::string_view model_fingerprint,
                              std::string_view data_type);

// NotFound naming the model that is asked for and those that are served. Code model_not_found.
absl::Status ModelNotServed(std::string_view asked, std::span<const std::string> served);
// As ModelNotServed says; an empty name is the served one.
absl::Status CheckModelName(const ServedModel& model, std::string_view asked);

// Bans what the model's generation_config.json says is never generated.
void BanSuppressed(const ServedModel& model, GenerationRequest& request);

// Sampling with the model's defaults filled in.
SamplingOptions DefaultSampling(const GenerationDefaults& defaults);

// The ids of `text` as they stand behind other text: a tokenizer that puts a space before every
// text gives others for the text alone. Empty where a token covers both.
std::vector<int32_t> IdsWithinText(const Tokenizer& tokenizer, const std::string& text,
                                   bool parse_special_tokens);

// Adds the token sequences of a text that must not be generated: with and without a space before
// it, at the start of a text and within one. InvalidArgument naming bad_words.
absl::Status AddBadWord(const ServedModel& model, const std::string& word,
                        GenerationRequest& request);

// The ids of a prompt. Without text, and where the tokenizer gives an empty one no id, it is the
// token that begins a document: the bos that the tokenizer puts before every text, else
// <|endoftext|>, as OpenAI has it, else bos. InvalidArgument naming prompt where the text is not
// UTF-8, or the model has no such token.
absl::StatusOr<std::vector<int32_t>> EncodePrompt(const ServedModel& model,
                                                  const std::optional<std::string>& text,
                                                  bool add_special_tokens);

// The text that an echo puts before the answer: `sent`, or where the prompt was sent as ids or was
// cut since it was tokenised, the text of its ids, special tokens included.
std::string EchoedPrompt(const ServedModel& model, const std::optional<std::string>& sent,
                         const std::vector<int32_t>& prompt, bool cut);

// truncate_prompt_tokens: keeps the prompt's last `wanted` tokens; -1: as many as the context takes
// beside `max_tokens` (or beside one). InvalidArgument where it is 0 or below -1.
absl::Status TruncatePrompt(const ServedModel& model, int64_t wanted,
                            std::optional<int64_t> max_tokens, std::vector<int32_t>& prompt);

// Before a text is encoded: InvalidArgument naming the field where even the longest tokens cannot
// fit it into the context. Not for prompts that are cut to fit (truncate_prompt_tokens).
absl::Status CheckMayFit(const ServedModel& model, std::string_view field, std::string_view text);

// The last check before Start: ids within the vocabulary, prompt within the context; and
// max_tokens, where `wanted_max_tokens` has no value, becomes what the context has left.
absl::Status FitToContext(const ServedModel& model, std::optional<int64_t> wanted_max_tokens,
                          GenerationRequest& request);

// Drawn from the system's random source.
uint64_t DrawSeed();
// 24 characters of [0-9a-f], unique for practical purposes.
std::string DrawId();
// `asked` where it is fit for logs and headers (1-128 visible ASCII characters), else a drawn one.
std::string RequestIdOr(std::string_view asked);

}  // namespace tessera::coordinator
