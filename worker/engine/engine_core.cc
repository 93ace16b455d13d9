// What comes in and how it ends. The steps: engine_core_step.cc.
#include "worker/engine/engine_core.h"

#include <string>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {

StepLimits EngineCore::LimitsOf(const EngineOptions& options) {
  StepLimits limits;
  limits.max_tokens = options.limits.max_batched_tokens;
  limits.max_sequences = options.limits.max_sequences;
  limits.max_logit_rows = options.limits.max_logit_rows;
  limits.max_blocks_per_sequence =
      scheduler::BlocksFor(options.max_model_len_tokens, options.limits.block_tokens);
  limits.windows_apart = options.window.tokens > 0;
  return limits;
}

EngineCore::EngineCore(const EngineOptions& options, std::unique_ptr<StepExecutor> executor)
    : options_(options),
      memory_(options.limits, options.window, options.seats, options.snapshots, options.exchanges),
      hand_over_(options, &table_, &memory_),
      table_(executor->lanes()),
      builder_(options, &table_, &memory_, &load_),
      states_(&memory_),
      executor_(std::move(executor)) {
  for (int i = 0; i < executor_->lanes(); ++i) {
    lanes_.emplace_back(LimitsOf(options), executor_->runs_ahead() ? 2 : 1);
  }
  load_.set_kv_blocks_total(static_cast<int32_t>(memory_.total_blocks()));
}

bool EngineCore::Busy() const {
  return table_.HasWork() || !in_flight_.empty() || hand_over_.has_waiting_rooms();
}

void EngineCore::Submit(v1::Submit submit, double now_seconds, Events* events) {
  if (const auto open = table_.Find(submit.submission_id())) {
    const uint32_t attempt = open->request.attempt();
    if (submit.attempt() <= attempt) {
      return AddRefusal(submit,
                        absl::FailedPreconditionError(StrCat(
                            "submission ", submit.submission_id(), " attempt ", submit.attempt(),
                            " is stale: attempt ", attempt, " is running")),
                        events);
    }
    EndSubmission(open, absl::CancelledError("a newer attempt replaced it"), events);
  }
  absl::Status status = CheckSubmit(submit, options_);
  if (status.ok() && submit.has_kv_target() && !hand_over_.has_mover()) {
    status = absl::FailedPreconditionError("this worker hands no KV over to other replicas");
  }
  if (status.ok() && !submit.grammar().empty() && !compile_) status = NoTokenGrammars();
  if (status.ok() && table_.queued_submissions() >= options_.max_waiting) {
    status = absl::ResourceExhaustedError(
        StrCat(table_.queued_submissions(), " submissions are waiting; the limit is ",
               options_.max_waiting, " (max_waiting): try again later"));
  }
  if (!status.ok()) return AddRefusal(submit, status, events);

  const std::shared_ptr<Submission> submission =
      table_.Open(std::move(submit), options_, now_seconds, memory_.pools());
  const v1::Submit& request = submission->request;
  const int64_t known = submission->prompt_tokens + request.output_token_ids_size();
  const bool grows =
      request.max_tokens() > request.output_token_ids_size() && known < LongestSequence(options_);
  const bool computes = grows || request.prompt_logprobs() >= 0;
  if (!computes) {  // nothing was asked that needs the model
    for (Sequence* sequence : table_.Of(*submission)) {
      AddEvent(sequence, now_seconds, events)->set_finish(v1::FINISH_REASON_LENGTH);
      table_.Move(sequence, SequenceState::kEnded);
    }
  } else if (!request.grammar().empty()) {
    submission->awaits_grammar = true;
    compile_({request.submission_id(), request.attempt()}, request.grammar());
  } else {
    Begin(submission.get());
  }
  UpdateLoad();
}

// Its first choice goes to the queue, or waits for KV on its way.
void EngineCore::Begin(Submission* submission) {
  Sequence* first = submission->held.back().get();
  if (submission->request.kv_ticket().empty() || !hand_over_.Await(first)) {
    table_.Move(first, SequenceState::kWaiting);
  }
}

void EngineCore::OnGrammar(const KvKey& key,
                           const absl::StatusOr<std::shared_ptr<const TokenGrammar>>& grammar,
                           Events* events) {
  const std::shared_ptr<Submission> submission = table_.Find(key);
  if (submission == nullptr || !submission->awaits_grammar) return;
  absl::Status status = grammar.status();
  for (Sequence* sequence : table_.Of(*submission)) {
    if (!status.ok()) break;
    sequence->matcher = (*grammar)->NewMatcher(submission->stop_ids);
    for (const int32_t id : submission->request.output_token_ids()) {
      if (sequence->matcher->Accept(id)) continue;
      status = sequence->matcher->status();
      if (!status.ok()) break;
      status = absl::InvalidArgumentError(
          StrCat("output_token_ids have token ", id, " where the grammar has none"));
      break;
    }
  }
  if (!status.ok()) {
    EndSubmission(submission, status, events);
  } else {
    submission->awaits_grammar = false;
    table_.set_changed(true);
    Begin(submission.get());
  }
  UpdateLoad();
}

void EngineCore::EndSubmission(const std::shared_ptr<Submission>& submission,
                               const absl::Status& status, Events* events) {
  hand_over_.Drop({submission->request.submission_id(), submission->request.attempt()});
  for (Sequence* sequence : table_.Of(*submission)) table_.End(sequence, status, events);
}

void EngineCore::Cancel(const v1::Cancel& cancel, Events* events) {
  const KvKey key{cancel.submission_id(), cancel.attempt()};
  const std::shared_ptr<Submission> submission = table_.Find(key);
  if (submission == nullptr) {
    hand_over_.Drop(key);
    return UpdateLoad();
  }
  const absl::Status status = absl::CancelledError("cancelled");
  const v1::Submit& request = submission->request;
  const bool only_choice = request.has_kv_target() || !request.kv_ticket().empty();
  if (cancel.choice() < 0 || (only_choice && cancel.choice() == request.first_choice())) {
    EndSubmission(submission, status, events);
    return UpdateLoad();
  }
  Sequence* sequence = table_.Find(
      *submission, {request.priority(), submission->turn, submission->arrival, cancel.choice()});
  if (sequence != nullptr) table_.End(sequence, status, events);
  UpdateLoad();
}

void EngineCore::OnKvSent(const KvKey& key, const absl::Status& status,
                          const v1::KvTransfer& transfer, double now_seconds, Events* events) {
  hand_over_.OnKvSent(key, status, transfer, now_seconds, events);
  UpdateLoad();
}

void EngineCore::EndAll(const absl::Status& status, Events* events) {
  while (const auto submission = table_.Any()) EndSubmission(submission, status, events);
  hand_over_.DropAll();
  UpdateLoad();
}

void EngineCore::ResetLoad() {
  load_.Clear();
  load_.set_kv_blocks_total(static_cast<int32_t>(memory_.total_blocks()));
  UpdateLoad();
}

void EngineCore::UpdateLoad() {
  load_.set_running(static_cast<int32_t>(table_.running_count()));
  load_.set_waiting(static_cast<int32_t>(table_.waiting().size()));
  load_.set_kv_blocks_used(static_cast<int32_t>(memory_.total_blocks() - memory_.free_blocks()));
}

}  // namespace tessera::worker
