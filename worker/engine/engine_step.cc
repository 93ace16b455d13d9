// One step: rows to the model, logits to tokens, tokens to events.
#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/ops.h"
#include "third_party/absl/str_cat.h"
#include "worker/engine/engine_core.h"

namespace tessera::worker {
namespace {

absl::Status NotFinite(int64_t position) {
  return absl::InternalError(
      StrCat("the model produced logits that are not finite (NaN or infinity) at position ",
             position, ": its weights are damaged, or values overflow (try --dtype float32)"));
}

absl::Status NothingToPick(const Submission& submission, int64_t position, int64_t vocabulary) {
  return absl::InvalidArgumentError(
      StrCat("no token is left to pick at position ", position, ": min_tokens ",
             submission.request.min_tokens(), " bans ", submission.stop_ids.size(),
             " stop ids, and allowed_token_ids, bad_words and logit_bias the rest, of a "
             "vocabulary of ",
             vocabulary));
}

}  // namespace

void EngineCore::Step(const std::function<double()>& clock, Events* events) {
  const double start_seconds = clock();
  RefuseOverdue(start_seconds, events);
  Plan();
  ApplyPlan(start_seconds, events);
  if (!scheduled_.empty()) {
    const uint64_t prompt_tokens_before = load_.prompt_tokens();
    const absl::Status status = RunStep();
    const double end_seconds = clock();
    if (status.ok()) {
      EndWithoutToken(events);
      Distribute(end_seconds, events);
    } else if (executor_->Broken().ok()) {
      FailStep(status, events);
    }
    load_.set_steps(load_.steps() + 1);
    const double seconds = end_seconds - start_seconds;
    load_.set_step_seconds(seconds);
    if (load_.prompt_tokens() > prompt_tokens_before) {
      load_.set_prefill_steps(load_.prefill_steps() + 1);
      load_.set_prefill_step_seconds(load_.prefill_step_seconds() + seconds);
    } else {
      load_.set_decode_step_seconds(load_.decode_step_seconds() + seconds);
    }
  }
  UpdateLoad();
}

absl::Status EngineCore::RunStep() {
  arrays_.Begin();
  for (Scheduled& s : scheduled_) {
    const Sequence& sequence = *s.sequence;
    s.first_row = arrays_.AddSequence({sequence.tokens, sequence.submission->prompt_tokens,
                                       sequence.computed_tokens, s.rows, &sequence.blocks});
  }
  CollectLogitRows();
  CollectRequests();
  arrays_.Seal();
  absl::Status status = executor_->Begin({&arrays_, sample_requests_, score_requests_});
  return status.ok() ? executor_->Take(&outcome_) : status;
}

// Order of logit rows: drawn without logprobs, drawn with, scored (see Sampler::Run).
void EngineCore::CollectLogitRows() {
  draws_.clear();
  score_rows_.clear();
  for (const Scheduled& s : scheduled_) {
    Sequence* sequence = s.sequence;
    Submission* submission = sequence->submission.get();
    const int64_t first = sequence->computed_tokens, end = first + s.rows;
    if (submission->NeedsScores()) {
      const int64_t next = static_cast<int64_t>(submission->prompt_logprobs.size());
      const int64_t last = std::min(end + 1, submission->prompt_tokens);
      for (int64_t position = std::max(first + 1, next); position < last; ++position) {
        const int32_t row = s.first_row + static_cast<int32_t>(position - 1 - first);
        score_rows_.push_back({submission, row, position});
      }
    }
    if (end == sequence->known_tokens() &&
        submission->request.max_tokens() > sequence->output_tokens()) {
      draws_.push_back({sequence, s.first_row + static_cast<int32_t>(s.rows) - 1});
    }
  }
  std::stable_partition(draws_.begin(), draws_.end(), [](const Draw& draw) {
    return draw.sequence->submission->request.top_logprobs() < 0;
  });
  for (const Draw& draw : draws_) arrays_.AddLogitRow(draw.row);
  for (const ScoreRow& score : score_rows_) arrays_.AddLogitRow(score.row);
}

void EngineCore::CollectRequests() {
  sample_requests_.clear();
  bans_.resize(std::max(bans_.size(), draws_.size()));
  for (const Draw& draw : draws_) {
    const Sequence& sequence = *draw.sequence;
    const Submission& submission = *sequence.submission;
    const v1::Submit& request = submission.request;
    SampleRequest& sample = sample_requests_.emplace_back();
    sample.params = &request.sampling();
    sample.choice = sequence.rank.choice;
    sample.position = sequence.known_tokens();
    if (sequence.history != nullptr) {
      sample.history_ids = sequence.history->ids();
      sample.history_counts = sequence.history->counts();
    }
    sample.top_logprobs = std::max(-1, request.top_logprobs());
    std::span<const int32_t> stop_ids;
    if (sequence.output_tokens() < request.min_tokens()) stop_ids = submission.stop_ids;
    sample.banned =
        submission.bans.After(std::span(sequence.tokens).subspan(submission.prompt_tokens),
                              stop_ids, &bans_[sample_requests_.size() - 1]);
  }
  score_requests_.clear();
  for (const ScoreRow& score : score_rows_) {
    const v1::Submit& request = score.submission->request;
    score_requests_.push_back(
        {request.prompt_token_ids(static_cast<int>(score.position)), request.prompt_logprobs()});
  }
}

// Ends the submissions to which the step gave no token or no score, and takes them out of it.
void EngineCore::EndWithoutToken(Events* events) {
  std::map<uint64_t, absl::Status> broken;  // by arrival; the first reason of each counts
  for (size_t i = 0; i < draws_.size(); ++i) {
    if (outcome_.samples[i].token_id >= 0) continue;
    const Sequence& sequence = *draws_[i].sequence;
    const int64_t position = sequence.known_tokens();
    broken.try_emplace(sequence.submission->arrival,
                       outcome_.samples[i].token_id == kernels::kNothingToPick
                           ? NothingToPick(*sequence.submission, position, options_.vocabulary)
                           : NotFinite(position));
  }
  for (size_t i = 0; i < score_rows_.size(); ++i) {
    if (std::isfinite(outcome_.scores[i].chosen().logprob())) continue;
    broken.try_emplace(score_rows_[i].submission->arrival, NotFinite(score_rows_[i].position));
  }
  if (broken.empty()) return;

  const auto is_broken = [&](const Submission& s) { return broken.contains(s.arrival); };
  size_t kept = 0;
  for (size_t i = 0; i < draws_.size(); ++i) {
    if (is_broken(*draws_[i].sequence->submission)) continue;
    draws_[kept] = draws_[i];
    std::swap(outcome_.samples[kept++], outcome_.samples[i]);
  }
  draws_.resize(kept);
  kept = 0;
  for (size_t i = 0; i < score_rows_.size(); ++i) {
    if (is_broken(*score_rows_[i].submission)) continue;
    score_rows_[kept] = score_rows_[i];
    std::swap(outcome_.scores[kept++], outcome_.scores[i]);
  }
  score_rows_.resize(kept);
  std::vector<std::shared_ptr<Submission>> ended;
  for (const Scheduled& s : scheduled_) {
    if (is_broken(*s.sequence->submission)) ended.push_back(s.sequence->submission);
  }
  std::erase_if(scheduled_, [&](const Scheduled& s) { return is_broken(*s.sequence->submission); });
  for (const auto& submission : ended) {
    // Several choices of one submission may have been in the step; the first takes all.
    const auto reason = broken.find(submission->arrival);
    if (reason == broken.end()) continue;
    EndSubmission(submission, reason->second, events);
    broken.erase(reason);
  }
}

void EngineCore::Distribute(double now_seconds, Events* events) {
  for (size_t i = 0; i < score_rows_.size(); ++i) {
    score_rows_[i].submission->prompt_logprobs.push_back(std::move(outcome_.scores[i]));
  }
  uint64_t prompt_tokens = 0;
  for (const Scheduled& s : scheduled_) {
    Sequence* sequence = s.sequence;
    Submission* submission = sequence->submission.get();
    const int64_t before = sequence->computed_tokens;
    sequence->computed_tokens += s.rows;
    const int64_t end = std::min(sequence->computed_tokens, submission->prompt_tokens);
    prompt_tokens += std::max<int64_t>(0, end - before);
    IndexBlocks(sequence);
    if (sequence->computed_tokens >= submission->prompt_tokens) ReleaseHeld(submission);
  }
  load_.set_prompt_tokens(load_.prompt_tokens() + prompt_tokens);
  load_.set_generation_tokens(load_.generation_tokens() + draws_.size());
  CloseEchoes(now_seconds, events);
  for (size_t i = 0; i < draws_.size(); ++i) {
    TakeToken(draws_[i].sequence, outcome_.samples[i], now_seconds, events);
  }
}

// Ends the choices that wanted no token, whose prompt is now computed.
void EngineCore::CloseEchoes(double now_seconds, Events* events) {
  for (const Scheduled& s : scheduled_) {
    Sequence* sequence = s.sequence;
    if (sequence->submission->request.max_tokens() > sequence->output_tokens()) continue;
    if (sequence->computed_tokens < sequence->known_tokens()) continue;
    AddEvent(sequence, now_seconds, events)->set_finish(v1::FINISH_REASON_LENGTH);
    Finish(TakeRunning(sequence));
  }
}

void EngineCore::IndexBlocks(Sequence* sequence) {
  const Submission& submission = *sequence->submission;
  const int64_t size = options_.limits.block_tokens;
  const int64_t tokens = std::min(sequence->computed_tokens, submission.indexed_tokens);
  for (int64_t& block = sequence->indexed_blocks; (block + 1) * size <= tokens; ++block) {
    sequence->node = index_.Insert(submission.salt, sequence->node,
                                   std::span(sequence->tokens).subspan(block * size, size),
                                   sequence->blocks.blocks()[block]);
  }
}

void EngineCore::ReleaseHeld(Submission* submission) {
  for (std::unique_ptr<Sequence>& sequence : submission->held) {
    const SequenceRank rank = sequence->rank;
    waiting_[rank] = std::move(sequence);
  }
  submission->held.clear();
}

v1::TokenEvent* EngineCore::AddEvent(Sequence* sequence, double now_seconds, Events* events) {
  Submission* submission = sequence->submission.get();
  v1::TokenEvent* event = &events->emplace_back();
  event->set_submission_id(submission->request.submission_id());
  event->set_attempt(submission->request.attempt());
  event->set_choice(sequence->rank.choice);
  if (sequence->told) return event;
  sequence->told = true;
  event->set_cached_tokens(submission->cached_tokens);
  if (sequence->started) {
    event->set_queue_seconds(sequence->started_seconds - submission->submitted_seconds);
    event->set_prefill_seconds(now_seconds - sequence->started_seconds);
  }
  if (submission->request.prompt_logprobs() >= 0 && !submission->prompt_logprobs_told) {
    submission->prompt_logprobs_told = true;
    for (v1::PositionLogprobs& position : submission->prompt_logprobs) {
      *event->add_prompt_logprobs() = std::move(position);
    }
  }
  return event;
}

void EngineCore::TakeToken(Sequence* sequence, const SampleResult& result, double now_seconds,
                           Events* events) {
  const Submission& submission = *sequence->submission;
  v1::TokenEvent* event = AddEvent(sequence, now_seconds, events);
  event->set_has_token(true);
  event->set_token_id(result.token_id);
  event->set_position(sequence->known_tokens());
  if (submission.request.top_logprobs() >= 0) *event->mutable_logprobs() = result.logprobs;
  sequence->tokens.push_back(result.token_id);
  if (sequence->history != nullptr) sequence->history->AddOutput(result.token_id);

  if (std::binary_search(submission.stop_ids.begin(), submission.stop_ids.end(), result.token_id)) {
    event->set_finish(v1::FINISH_REASON_STOP);
    event->set_stop_token_id(result.token_id);
  } else if (sequence->output_tokens() >= submission.request.max_tokens() ||
             sequence->known_tokens() >= LongestSequence(options_)) {
    event->set_finish(v1::FINISH_REASON_LENGTH);
  }
  if (event->finish() != v1::FINISH_REASON_UNSPECIFIED) Finish(TakeRunning(sequence));
}

void EngineCore::FailStep(const absl::Status& status, Events* events) {
  for (const Scheduled& s : scheduled_) {
    // A submission lives or dies as one: choices of it that were not in this step end as well.
    const auto open = std::find_if(running_.begin(), running_.end(),
                                   [&](const auto& r) { return r.get() == s.sequence; });
    if (open != running_.end()) EndSubmission((*open)->submission, status, events);
  }
}

}  // namespace tessera::worker
