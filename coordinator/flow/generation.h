// One generation as the front doors see it: what was asked, already as token ids, and what comes
// back, already as text. http_api and inference_service make GenerationRequests and consume
// GenerationEvents; request_flow stands between them and the workers.
//
// Thread rule: plain data. A GenerationSink is called by one thread at a time, never while one of
// the caller's own calls into RequestFlow is on the stack of the same thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::coordinator {

// Values equal to the stated "off" do nothing. Ranges are checked by whoever builds the request.
struct SamplingOptions {
  float temperature = 1.0f;  // 0: greedy
  float top_p = 1.0f;        // 1: off
  int32_t top_k = 0;         // 0: off
  float min_p = 0.0f;        // 0: off
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, added to its logit
  uint64_t seed = 0;        // always set: drawn by the front door where the client gives none
  bool seed_given = false;  // by the client
};

// How a model marks its thinking; no opening mark: it does not.
struct ThinkingMarks {
  std::string opening;
  std::string closing;
  bool is_open = false;  // the prompt ends within it
};

// Ends thinking that takes longer; as v1::ThinkingBudget.
struct ThinkingBudget {
  int32_t tokens = 0;
  std::vector<int32_t> opening_ids;
  int32_t closing_id = 0;
  std::vector<int32_t> end_ids;
};

// Finds an answer's end that only a reader of its text sees. Thread rule: one thread at a time.
class TextEnd {
 public:
  virtual ~TextEnd() = default;
  // The next text of the answer. True: the answer ends within it; nothing comes after that.
  virtual bool Append(std::string_view text) = 0;
};

struct GenerationRequest {
  std::string request_id;
  // The `id` of a stream's events, under which its tokens are kept (kept_answer.h); empty: they are
  // not.
  std::string answer_id;
  // What is kept under answer_id goes on. `emitted_token_ids`, its tokens: the resumption finds
  // them, and the request flow sends them to the client first.
  bool resumes = false;
  std::vector<int32_t> emitted_token_ids;
  std::string
      traceparent;  // the client's trace (tracing/trace_context.h), as it came; may be empty
  std::vector<int32_t> prompt_token_ids;
  // So many of them, at the end, open the answer, behind the conversation's last message; 0: not
  // known. The others come again when the conversation goes on.
  int32_t opening_tokens = 0;
  // Likewise, those from the last message's text on; 0: not known.
  int32_t last_message_tokens = 0;
  std::string prompt_text;  // that the answer begins with, where it is asked for (echo)
  int32_t choice_count = 1;
  SamplingOptions sampling;
  int32_t max_tokens = 16;  // per choice; 0: prompt only
  int32_t min_tokens = 0;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop_strings;        // end the text and are cut from it
  std::vector<int32_t> allowed_token_ids;       // only these are generated; empty: every id
  std::vector<std::vector<int32_t>> bad_words;  // token sequences that the answer never contains
  std::string grammar;                          // of the answer (v1::Submit); empty: it is free
  // Makes one for each choice, which ends there as at a stop string, but keeps the text of the
  // token that ends it. Null: none.
  std::function<std::unique_ptr<TextEnd>()> make_text_end;
  bool include_stop_string = false;
  bool skip_special_tokens = true;
  std::vector<int32_t> shown_special_ids;  // part of the text all the same
  ThinkingMarks thinking;                  // stop strings do not count within it
  std::optional<ThinkingBudget> thinking_budget;
  bool ignore_eos = false;
  int32_t top_logprobs = -1;     // -1: none; 0: the chosen token's; else that many besides
  int32_t prompt_logprobs = -1;  // the same for the prompt
  // With top_logprobs >= 0: each token's logprobs have these too (PositionChances::asked).
  std::vector<int32_t> logprob_ids;
  std::string cache_salt;
  int32_t priority = 0;
  // The same for the prompts of one client's request, which take turns with other requests; 0: it
  // has no other prompt.
  uint64_t group = 0;
  // The first of its group: the others wait with it, and have no queue timeout of their own.
  bool leads_group = true;
  // Who asks: the name of the API key, and within it the user whom the request names; may be empty.
  std::string client, user;
  // Among requests of its priority the lowest goes first (coordinator/fairness); 0: by group, then
  // arrival.
  uint64_t turn = 0;
  // When the answer should be there, from now on (0 or less: it is late already); nothing: no
  // deadline, or that of its workflow, which its client names. Of several calls of a workflow that
  // follow each other, so many are left, this one included.
  std::optional<double> deadline_seconds;
  std::string workflow;
  int32_t workflow_stages_left = 1;
  // What the fair service makes of a deadline: where no replica has begun the request by then, from
  // now on, it goes on waiting with `late_turn`. Nothing: it has none, or is late already.
  std::optional<double> begin_within_seconds;
  uint64_t late_turn = 0;
  bool show_timings = false;  // the answer says what GenerationTimings has
  bool final_rows = false;    // each event has the final row of its last token
  // The first has the mean of the prompt's final rows instead; with prompt_logprobs.
  bool mean_rows = false;
};

struct TokenChance {
  int32_t token_id = 0;
  float logprob = 0.0f;
  int32_t rank = 0;  // 1: most likely
};

// One position of prompt or output.
struct PositionChances {
  bool has_chosen = true;  // false at the first prompt position
  TokenChance chosen;
  std::vector<TokenChance> top;    // most likely first
  std::vector<TokenChance> asked;  // of GenerationRequest::logprob_ids, in their order; no rank
};

// kError: this choice alone, while others of its request end well, or may yet.
enum class Finish { kNone, kStop, kLength, kError };

// What one step added to one choice. Text may lag behind tokens (half a character, a stop string's
// possible beginning); when `finish` is set nothing is held back any more. Tokens that belong to a
// cut stop string are not reported: text, tokens and logprobs of all events add up to the answer.
// An eos or stop id is reported too, as the last one and without text: evaluation harnesses count
// on one logprob for each token that was generated. (A chat's logprobs are those of its text.)
struct ChoiceEvent {
  int32_t choice = 0;
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<PositionChances> logprobs;  // one per token id, when asked for
  bool ends_with_stop_token = false;      // the last of token_ids is an eos or stop id
  // When asked for: the row that the last token was drawn from, behind the final norm.
  std::vector<float> final_row;
  Finish finish = Finish::kNone;
  std::string
      stop_reason;  // the stop string, or the decimal stop token id given by the client; else empty
  absl::Status error = {};  // with kError: why
};

// The way of a prompt's KV from one replica to another.
struct KvTransferTimings {
  int64_t bytes = 0;
  double seconds = 0;         // from the first layer's KV until the other replica had all
  double hidden_share = 0;    // 0..1, of `seconds`: while the prompt was being computed
  std::string transport;      // as in v1::KvTransfer
  std::string codec = "raw";  // "raw", "int8", "int4"
};

// Tokens that steps tried ahead (v1::Speculation); none of an answer depends on them.
struct DraftTimings {
  int64_t steps = 0;            // that tried some for a choice
  int64_t tokens = 0;           // that were tried
  int64_t accepted_tokens = 0;  // of these, that stood: each saved a step
};

// Who did what part of a generation, and how long it took. Of a generation that went on elsewhere
// after a loss: the first prefill, the last decode.
struct GenerationTimings {
  double queue_seconds = 0;
  std::string prefill_replica;
  double prefill_seconds = 0;
  std::optional<KvTransferTimings> kv_transfer;  // none: one replica did all
  std::string decode_replica;                    // the same as prefill_replica where there is none
  int64_t decode_tokens = 0;                     // of all choices, behind the first of each
  double decode_seconds = 0;                     // from the first token to the last
  DraftTimings drafts = {};
};

struct GenerationUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;  // reported ones, and the eos or stop id that ended a choice
  int64_t cached_tokens = 0;      // prompt tokens found in the prefix cache
  int64_t thinking_tokens = 0;    // of completion_tokens, marks included
  GenerationTimings timings = {};
};

// Receives one generation. OnEnd comes exactly once and last; with an error where no choice ended
// well.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  // Before the first event, when prompt logprobs were asked for: one entry per prompt token.
  virtual void OnPromptLogprobs(std::vector<PositionChances> positions) = 0;
  virtual void OnChoice(ChoiceEvent event) = 0;
  virtual void OnEnd(const absl::Status& status, const GenerationUsage& usage,
                     const std::string& replica) = 0;
};

// A running generation. Dropping the handle cancels what is left of it.
class GenerationHandle {
 public:
  virtual ~GenerationHandle() = default;
  // No event comes after Cancel returned, except one that is being delivered right now. Idempotent.
  virtual void Cancel() = 0;
};

// The one entry of the front doors into serving. Thread-safe.
class GenerationService {
 public:
  virtual ~GenerationService() = default;
  // Errors at once: UNAVAILABLE (no replica is ready, draining), RESOURCE_EXHAUSTED (queue full),
  // INVALID_ARGUMENT (prompt and max_tokens beyond the context, naming both numbers). The sink
  // lives until OnEnd or Cancel.
  virtual absl::StatusOr<std::unique_ptr<GenerationHandle>> Start(
      GenerationRequest request, std::shared_ptr<GenerationSink> sink) = 0;
};

}  // namespace tessera::coordinator
