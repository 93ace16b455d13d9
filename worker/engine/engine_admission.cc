#include "worker/engine/engine_admission.h"

#include <algorithm>
#include <cmath>

#include "proto/sampling_ranges.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

// So that drafts that stood are computed once more before chunks of prompts are.
static_assert(kMaxDrafts + 1 <= scheduler::kDecodeRows);

constexpr int64_t kMaxStopIds = 1024;
constexpr int kMaxBadWords = 4096;

absl::Status Invalid(const std::string& text) { return absl::InvalidArgumentError(text); }

absl::Status CheckTokens(const char* field, const google::protobuf::RepeatedField<int32_t>& ids,
                         int64_t vocabulary) {
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary) {
      return Invalid(
          StrCat(field, "[", i, "] is ", ids[i], "; the vocabulary has ids 0 to ", vocabulary - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(const v1::Submit& submit, const EngineOptions& options) {
  const int64_t prompt = submit.prompt_token_ids_size();
  if (prompt == 0) return Invalid("prompt_token_ids is empty; a prompt has at least one token");
  const int64_t known = prompt + submit.output_token_ids_size();
  // An earlier attempt's answer that has grown as long as there is room for: it ends.
  if (submit.output_token_ids_size() > 0 && known == LongestSequence(options))
    return absl::OkStatus();
  const int64_t wanted = known + (submit.max_tokens() > submit.output_token_ids_size() ? 1 : 0);
  if (wanted > options.max_model_len_tokens) {
    return Invalid(StrCat("the prompt has ", known, " tokens, and with the first generated one ",
                          wanted, "; the context (max_model_len) is ", options.max_model_len_tokens,
                          " tokens"));
  }
  const int64_t pool_tokens = options.limits.total_blocks * options.limits.block_tokens;
  if (known > pool_tokens) {
    return Invalid(StrCat("the prompt has ", known, " tokens; the KV pool of this worker holds ",
                          pool_tokens, ": give it more memory (--kv-cache-memory-bytes)"));
  }
  return absl::OkStatus();
}

absl::Status CheckSampling(const v1::SamplingParams& params, int64_t vocabulary) {
  // 0 is "unset", whatever the range; the least penalty keeps logits finite.
  const auto check = [](const char* field, float value, const NumberRange& range) -> absl::Status {
    const auto low = static_cast<float>(range.min), high = static_cast<float>(range.max);
    if (value == 0 || (value >= low && value <= high)) return absl::OkStatus();
    return Invalid(StrCat(field, " is ", value, "; it must be between ", low, " and ", high));
  };
  absl::Status status = check("temperature", params.temperature(), kTemperatureRange);
  status.Update(check("top_p", params.top_p(), kTopPRange));
  status.Update(check("min_p", params.min_p(), kMinPRange));
  status.Update(check("repetition_penalty", params.repetition_penalty(), kRepetitionPenaltyRange));
  status.Update(check("presence_penalty", params.presence_penalty(), kPenaltyRange));
  status.Update(check("frequency_penalty", params.frequency_penalty(), kPenaltyRange));
  if (params.top_k() < 0) status.Update(Invalid(StrCat("top_k is ", params.top_k(), "; 0 is off")));
  for (const auto& [id, value] : params.logit_bias()) {
    if (id < 0 || id >= vocabulary || std::isnan(value) || value == INFINITY) {
      status.Update(Invalid(StrCat("logit_bias names token ", id, " with ", value,
                                   "; ids go from 0 to ", vocabulary - 1)));
    }
  }
  return status;
}

absl::Status CheckChoices(const v1::Submit& submit) {
  if (submit.choice_count() < 0 || submit.choice_count() > kMaxChoices) {
    return Invalid(StrCat("choice_count is ", submit.choice_count(), "; it must be between 1 and ",
                          kMaxChoices));
  }
  if (submit.first_choice() < 0 || submit.first_choice() >= (1 << 20)) {
    return Invalid(StrCat("first_choice is ", submit.first_choice(), "; it must be between 0 and ",
                          (1 << 20) - 1));
  }
  if (submit.output_token_ids_size() > 0 && submit.choice_count() > 1) {
    return Invalid(StrCat("output_token_ids continue one choice, but choice_count is ",
                          submit.choice_count()));
  }
  if (submit.max_tokens() < 0 || submit.min_tokens() < 0) {
    return Invalid(StrCat("max_tokens is ", submit.max_tokens(), " and min_tokens ",
                          submit.min_tokens(), "; neither may be negative"));
  }
  for (const int32_t top : {submit.top_logprobs(), submit.prompt_logprobs()}) {
    if (top > kMaxTopLogprobs) {
      return Invalid(
          StrCat(top, " logprobs per position were asked for; the limit is ", kMaxTopLogprobs));
    }
  }
  if (submit.stop_token_ids_size() > kMaxStopIds) {
    return Invalid(
        StrCat(submit.stop_token_ids_size(), " stop_token_ids; the limit is ", kMaxStopIds));
  }
  return absl::OkStatus();
}

absl::Status CheckBans(const v1::Submit& submit, int64_t vocabulary) {
  if (submit.bad_words_size() > kMaxBadWords) {
    return Invalid(StrCat(submit.bad_words_size(), " bad_words; the limit is ", kMaxBadWords));
  }
  absl::Status status = CheckTokens("allowed_token_ids", submit.allowed_token_ids(), vocabulary);
  if (submit.logprob_ids_size() > kMaxTopLogprobs) {
    status.Update(
        Invalid(StrCat(submit.logprob_ids_size(), " logprob_ids; the limit is ", kMaxTopLogprobs)));
  }
  status.Update(CheckTokens("logprob_ids", submit.logprob_ids(), vocabulary));
  for (const v1::TokenSequence& word : submit.bad_words()) {
    if (word.ids_size() == 0) status.Update(Invalid("a word of bad_words has no token"));
    status.Update(CheckTokens("bad_words", word.ids(), vocabulary));
  }
  const v1::ThinkingBudget& thinking = submit.thinking_budget();
  if (thinking.tokens() < 0) status.Update(Invalid("thinking_budget.tokens is negative"));
  status.Update(CheckTokens("thinking_budget", thinking.end_ids(), vocabulary));
  return status;
}

// Blocks are of no use without the states that go with them.
bool SharesPrompts(const EngineOptions& options) {
  return options.seats == 0 || options.snapshots > 0;
}

// Where the submission's blocks may be shared, and under which salt.
void SetSharing(const EngineOptions& options, Submission* submission) {
  const v1::Submit& request = submission->request;
  Sharing sharing =
      SharingOf(options, submission->prompt_tokens, request.cache_salt(), request.kv_codec());
  if (sharing.indexed_tokens > 0) {
    submission->salt = std::move(sharing.salt);
    submission->indexed_tokens = sharing.indexed_tokens;
    submission->counts_as_cache = true;
  } else if (request.choice_count() > 1 && SharesPrompts(options)) {
    // Between its own choices only: their prompts are the same, so are their rotations.
    submission->salt = StrCat("s", submission->arrival);
    submission->indexed_tokens = submission->prompt_tokens;
  }
}

bool HasPenalty(const v1::SamplingParams& params) {
  return params.repetition_penalty() != 1.0f || params.presence_penalty() != 0.0f ||
         params.frequency_penalty() != 0.0f;
}

}  // namespace

int64_t LongestSequence(const EngineOptions& options) {
  // The last token of a sequence needs no room: its keys are never read.
  return std::min(options.max_model_len_tokens,
                  options.limits.total_blocks * options.limits.block_tokens + 1);
}

Sharing SharingOf(const EngineOptions& options, int64_t prompt_tokens,
                  const std::string& cache_salt, v1::KvCodec codec) {
  const int64_t original = options.dynamic_rope_original_tokens;
  int64_t shareable = std::numeric_limits<int64_t>::max();
  if (original > 0) shareable = prompt_tokens > original ? 0 : original;
  if (!options.prefix_cache || shareable == 0 || !SharesPrompts(options)) return {};
  // Blocks that were rounded on their way are not those of a prompt that was computed here.
  const bool rounded = codec != v1::KV_CODEC_UNSPECIFIED && codec != v1::KV_CODEC_RAW;
  return {shareable, StrCat(rounded ? v1::KvCodec_Name(codec) : "", "c", cache_salt)};
}

absl::Status CheckReserve(const v1::Reserve& reserve, const EngineOptions& options) {
  v1::Submit submit;
  *submit.mutable_prompt_token_ids() = reserve.prompt_token_ids();
  submit.set_max_tokens(1);
  absl::Status status = CheckLengths(submit, options);
  status.Update(CheckTokens("prompt_token_ids", reserve.prompt_token_ids(), options.vocabulary));
  const int64_t pool_tokens = options.limits.total_blocks * options.limits.block_tokens;
  if (status.ok() && reserve.prompt_token_ids_size() >= pool_tokens) {
    status = Invalid(StrCat("the prompt has ", reserve.prompt_token_ids_size(),
                            " tokens; the KV pool of this worker holds ", pool_tokens,
                            ", and the first generated one needs room too"));
  }
  return status;
}

absl::Status CheckSubmit(const v1::Submit& submit, const EngineOptions& options) {
  absl::Status status = CheckLengths(submit, options);
  status.Update(CheckTokens("prompt_token_ids", submit.prompt_token_ids(), options.vocabulary));
  status.Update(CheckTokens("output_token_ids", submit.output_token_ids(), options.vocabulary));
  status.Update(CheckChoices(submit));
  if (submit.has_kv_target() && submit.choice_count() > 1) {
    status.Update(Invalid(
        StrCat("kv_target hands over one choice, but choice_count is ", submit.choice_count())));
  }
  status.Update(CheckSampling(submit.sampling(), options.vocabulary));
  status.Update(CheckBans(submit, options.vocabulary));
  if (!submit.grammar().empty() && submit.stop_token_ids().empty() &&
      options.eos_token_ids.empty()) {
    status.Update(
        Invalid("the model has no token that ends an answer, and one with a grammar needs it: give "
                "stop_token_ids"));
  }
  return status;
}

std::shared_ptr<Submission> MakeSubmission(v1::Submit submit, const EngineOptions& options,
                                           uint64_t arrival, uint64_t turn, double now_seconds) {
  auto submission = std::make_shared<Submission>();
  submission->arrival = arrival;
  submission->turn = turn;
  submission->prompt_tokens = submit.prompt_token_ids_size();
  submission->submitted_seconds = now_seconds;
  if (submit.queue_timeout_seconds() > 0) {
    submission->deadline_seconds = now_seconds + submit.queue_timeout_seconds();
  }
  std::vector<int32_t>& stops = submission->stop_ids;
  for (const int32_t id : submit.stop_token_ids()) {
    if (id >= 0 && id < options.vocabulary) stops.push_back(id);
  }
  if (!submit.ignore_eos() || !submit.grammar().empty()) {
    stops.insert(stops.end(), options.eos_token_ids.begin(), options.eos_token_ids.end());
  }
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());

  submission->bans = TokenBans(submit, options.vocabulary);
  submit.set_choice_count(std::max(1, submit.choice_count()));
  v1::SamplingParams* params = submit.mutable_sampling();
  if (params->top_p() == 0) params->set_top_p(1);  // unset: neither can mean anything else
  if (params->repetition_penalty() == 0) params->set_repetition_penalty(1);
  submission->request = std::move(submit);
  if (submission->request.prompt_logprobs() >= 0) submission->prompt_logprobs.emplace_back();
  SetSharing(options, submission.get());
  return submission;
}

std::unique_ptr<Sequence> MakeSequence(const std::shared_ptr<Submission>& submission,
                                       int32_t choice, const KvPools& pools) {
  auto sequence = std::make_unique<Sequence>(pools);
  const v1::Submit& request = submission->request;
  sequence->submission = submission;
  sequence->rank = {request.priority(), submission->turn, submission->arrival, choice};
  sequence->tokens.assign(request.prompt_token_ids().begin(), request.prompt_token_ids().end());
  sequence->tokens.insert(sequence->tokens.end(), request.output_token_ids().begin(),
                          request.output_token_ids().end());
  if (HasPenalty(request.sampling())) {
    sequence->history = std::make_unique<TokenHistory>();
    for (const int32_t id : request.prompt_token_ids()) sequence->history->AddPrompt(id);
    for (const int32_t id : request.output_token_ids()) sequence->history->AddOutput(id);
  }
  ++submission->open_choices;
  return sequence;
}

}  // namespace tessera::worker
