// One step: rows to the model, logits to tokens, tokens to events.
#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/ops.h"
#include "scheduler/lanes.h"
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

// What scheduler::StartLanes asks for, at one moment.
class EngineCore::LaneStarter {
 public:
  LaneStarter(EngineCore* core, double now_seconds, Events* events)
      : core_(*core), now_seconds_(now_seconds), events_(events) {}

  int count() const { return static_cast<int>(core_.lanes_.size()); }
  bool Busy(int lane) const {
    const Lane& started = core_.lanes_[lane];
    return started.in_flight() > 0 && !core_.MayRunAhead(started);
  }
  bool Holds(int lane) const { return !core_.lanes_[lane].running.empty(); }
  bool Start(int lane) {
    if (!core_.BeginStep(lane, now_seconds_, events_)) return false;
    if (core_.MayRunAhead(core_.lanes_[lane])) core_.BeginStep(lane, now_seconds_, events_);
    return true;
  }
  void MergeIntoFirst() { core_.MergeLanes(); }

 private:
  EngineCore& core_;
  const double now_seconds_;
  Events* const events_;
};

void EngineCore::BeginSteps(double now_seconds, Events* events) {
  RefuseOverdue(now_seconds, events);
  if (!changed_ || !executor_->Broken().ok()) return;
  changed_ = false;
  GiveRooms();
  LaneStarter starter(this, now_seconds, events);
  scheduler::StartLanes(starter);
  UpdateLoad();
}

void EngineCore::Step(const std::function<double()>& clock, Events* events) {
  BeginSteps(clock(), events);
  if (!in_flight_.empty()) EndStep(clock, events);
}

bool EngineCore::BeginStep(size_t index, double now_seconds, Events* events) {
  Lane& lane = lanes_[index];
  LaneStep& step = lane.next();
  TakeJoining(lane);
  do {  // ends: a plan without rows that makes progress takes something out of the lane or the
        // queue
    if (lane.running.empty() && waiting_.empty()) return false;
    Plan(lane);
    if (!plan_.MakesProgress()) return false;
    if (lane.in_flight() > 0 && plan_.GivesUpAny()) return false;
    ApplyPlan(lane, now_seconds, events);
  } while (step.scheduled.empty());
  if (const absl::Status status = SendStep(step); !status.ok()) {
    if (executor_->Broken().ok()) FailStep(lane, step, status, events);
    return false;
  }
  for (const Scheduled& s : step.scheduled) {
    ++s.sequence->steps_in_flight;
    s.sequence->step_lane = static_cast<int32_t>(index);
    s.sequence->rows_in_flight += s.rows;
  }
  for (size_t i = 0; i < step.draws.size(); ++i) {
    ++step.draws[i].sequence->draws_in_flight;
    step.draws[i].sequence->last_draw = static_cast<int32_t>(i);
  }
  step.began_seconds = now_seconds;
  ++lane.begun;
  in_flight_.push_back(index);
  return true;
}

void EngineCore::EndStep(const std::function<double()>& clock, Events* events) {
  Lane& lane = lanes_[in_flight_.front()];
  LaneStep& step = lane.oldest();
  in_flight_.pop_front();
  const absl::Status status = executor_->Take(&outcome_);
  const double now_seconds = clock();
  ++lane.ended_steps;
  changed_ = true;
  for (const Draw& draw : step.draws) --draw.sequence->draws_in_flight;
  for (const Scheduled& s : step.scheduled) {
    --s.sequence->steps_in_flight;
    s.sequence->rows_in_flight -= s.rows;
  }
  if (status.ok()) DropFromStep(step, [](const Sequence& s) { return s.ended; });
  std::erase_if(step.scheduled, [](const Scheduled& s) { return s.sequence->ended; });
  std::erase_if(lane.ended, [](const auto& sequence) { return sequence->steps_in_flight == 0; });
  const uint64_t prompt_tokens_before = load_.prompt_tokens();
  if (status.ok()) {
    EndWithoutToken(step, events);
    Distribute(step, now_seconds, events);
  } else if (executor_->Broken().ok()) {
    FailStep(lane, step, status, events);
  }
  CountStep(step, load_.prompt_tokens() > prompt_tokens_before, now_seconds);
  UpdateLoad();
}

// Where steps overlap, one counts from when the one before came back.
void EngineCore::CountStep(const LaneStep& step, bool prefill, double now_seconds) {
  load_.set_steps(load_.steps() + 1);
  const double seconds = now_seconds - std::max(step.began_seconds, last_end_seconds_);
  load_.set_step_seconds(lanes_.size() == 1 ? seconds : now_seconds - step.began_seconds);
  last_end_seconds_ = now_seconds;
  if (prefill) {
    load_.set_prefill_steps(load_.prefill_steps() + 1);
    load_.set_prefill_step_seconds(load_.prefill_step_seconds() + seconds);
  } else {
    load_.set_decode_step_seconds(load_.decode_step_seconds() + seconds);
  }
}

absl::Status EngineCore::SendStep(LaneStep& step) {
  step.arrays.Begin();
  for (Scheduled& s : step.scheduled) {
    const Sequence& sequence = *s.sequence;
    s.first_row = step.arrays.AddSequence({sequence.tokens, sequence.submission->prompt_tokens,
                                           sequence.computed_then(), s.rows, &sequence.blocks,
                                           sequence.last_draw});
  }
  CollectLogitRows(step);
  CollectRequests(step);
  CollectPushes(step);
  step.arrays.Seal();
  return executor_->Begin({&step.arrays, step.sample_requests, step.score_requests, step.pushes});
}

// Order of logit rows: drawn without logprobs, drawn with, scored (see Sampler::Run).
void EngineCore::CollectLogitRows(LaneStep& step) {
  step.draws.clear();
  step.score_rows.clear();
  for (const Scheduled& s : step.scheduled) {
    Sequence* sequence = s.sequence;
    Submission* submission = sequence->submission.get();
    const int64_t first = sequence->computed_then(), end = first + s.rows;
    if (submission->NeedsScores()) {
      const int64_t next = static_cast<int64_t>(submission->prompt_logprobs.size());
      const int64_t last = std::min(end + 1, submission->prompt_tokens);
      for (int64_t position = std::max(first + 1, next); position < last; ++position) {
        const int32_t row = s.first_row + static_cast<int32_t>(position - 1 - first);
        step.score_rows.push_back({sequence, row, position});
      }
    }
    if (end == sequence->tokens_then() &&
        submission->request.max_tokens() > sequence->output_then()) {
      step.draws.push_back({sequence, s.first_row + static_cast<int32_t>(s.rows) - 1});
    }
  }
  std::stable_partition(step.draws.begin(), step.draws.end(), [](const Draw& draw) {
    return draw.sequence->submission->request.top_logprobs() < 0;
  });
  for (const Draw& draw : step.draws) step.arrays.AddLogitRow(draw.row);
  for (const ScoreRow& score : step.score_rows) step.arrays.AddLogitRow(score.row);
}

void EngineCore::CollectRequests(LaneStep& step) {
  step.sample_requests.clear();
  step.bans.resize(std::max(step.bans.size(), step.draws.size()));
  for (const Draw& draw : step.draws) {
    const Sequence& sequence = *draw.sequence;
    const Submission& submission = *sequence.submission;
    const v1::Submit& request = submission.request;
    SampleRequest& sample = step.sample_requests.emplace_back();
    sample.params = &request.sampling();
    sample.choice = sequence.rank.choice;
    sample.position = sequence.tokens_then();
    if (sequence.history != nullptr) {
      sample.history_ids = sequence.history->ids();
      sample.history_counts = sequence.history->counts();
    }
    sample.top_logprobs = std::max(-1, request.top_logprobs());
    std::span<const int32_t> stop_ids;
    if (sequence.output_then() < request.min_tokens()) stop_ids = submission.stop_ids;
    sample.banned =
        submission.bans.After(std::span(sequence.tokens).subspan(submission.prompt_tokens),
                              stop_ids, &step.bans[step.sample_requests.size() - 1]);
  }
  step.score_requests.clear();
  for (const ScoreRow& score : step.score_rows) {
    const v1::Submit& request = score.sequence->submission->request;
    step.score_requests.push_back(
        {request.prompt_token_ids(static_cast<int>(score.position)), request.prompt_logprobs()});
  }
}

// Takes what a step computes of some sequences out of it, with its outcome.
template <typename Predicate>
void EngineCore::DropFromStep(LaneStep& step, const Predicate& drops) {
  const auto drop = [&](auto& rows, auto& outcomes) {
    size_t kept = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (drops(*rows[i].sequence)) continue;
      if (kept != i) {
        rows[kept] = rows[i];
        std::swap(outcomes[kept], outcomes[i]);
      }
      ++kept;
    }
    rows.resize(kept);
  };
  drop(step.draws, outcome_.samples);
  drop(step.score_rows, outcome_.scores);
}

// Ends the submissions to which the step gave no token or no score, and takes them out of it.
void EngineCore::EndWithoutToken(LaneStep& step, Events* events) {
  std::map<uint64_t, absl::Status> broken;  // by arrival; the first reason of each counts
  for (size_t i = 0; i < step.draws.size(); ++i) {
    if (outcome_.samples[i].token_id >= 0) continue;
    const Sequence& sequence = *step.draws[i].sequence;
    const int64_t position = sequence.known_tokens();
    broken.try_emplace(sequence.submission->arrival,
                       outcome_.samples[i].token_id == kernels::kNothingToPick
                           ? NothingToPick(*sequence.submission, position, options_.vocabulary)
                           : NotFinite(position));
  }
  for (size_t i = 0; i < step.score_rows.size(); ++i) {
    if (std::isfinite(outcome_.scores[i].chosen().logprob())) continue;
    const ScoreRow& row = step.score_rows[i];
    broken.try_emplace(row.sequence->submission->arrival, NotFinite(row.position));
  }
  if (broken.empty()) return;

  const auto is_broken = [&](const Sequence& s) { return broken.contains(s.submission->arrival); };
  DropFromStep(step, is_broken);
  std::vector<std::shared_ptr<Submission>> ended;
  for (const Scheduled& s : step.scheduled) {
    if (is_broken(*s.sequence)) ended.push_back(s.sequence->submission);
  }
  std::erase_if(step.scheduled, [&](const Scheduled& s) { return is_broken(*s.sequence); });
  for (const auto& submission : ended) {
    // Several choices of one submission may have been in the step; the first takes all.
    const auto reason = broken.find(submission->arrival);
    if (reason == broken.end()) continue;
    EndSubmission(submission, reason->second, events);
    broken.erase(reason);
  }
}

void EngineCore::Distribute(LaneStep& step, double now_seconds, Events* events) {
  for (size_t i = 0; i < step.score_rows.size(); ++i) {
    step.score_rows[i].sequence->submission->prompt_logprobs.push_back(
        std::move(outcome_.scores[i]));
  }
  uint64_t prompt_tokens = 0;
  for (const Scheduled& s : step.scheduled) {
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
  load_.set_generation_tokens(load_.generation_tokens() + step.draws.size());
  CloseEchoes(step, now_seconds, events);
  for (size_t i = 0; i < step.draws.size(); ++i) {
    TakeToken(step.draws[i].sequence, outcome_.samples[i], now_seconds, events);
  }
}

// Ends the choices that wanted no token, whose prompt is now computed.
void EngineCore::CloseEchoes(const LaneStep& step, double now_seconds, Events* events) {
  for (const Scheduled& s : step.scheduled) {
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
  if (event->finish() != v1::FINISH_REASON_UNSPECIFIED) {
    answers_.Note(sequence->output_tokens());
    Finish(TakeRunning(sequence));
  } else if (submission.request.has_kv_target()) {
    HandOver(TakeRunning(sequence), now_seconds, events);
  }
}

void EngineCore::FailStep(const Lane& lane, const LaneStep& step, const absl::Status& status,
                          Events* events) {
  for (const Scheduled& s : step.scheduled) {
    // A submission lives or dies as one: choices of it that were not in this step end as well.
    const auto open = std::find_if(lane.running.begin(), lane.running.end(),
                                   [&](const auto& r) { return r.get() == s.sequence; });
    if (open != lane.running.end()) EndSubmission((*open)->submission, status, events);
  }
}

}  // namespace tessera::worker
