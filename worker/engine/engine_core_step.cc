// One step of EngineCore: begun on the executor, its tokens taken, tokens to events.
#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/ops.h"
#include "scheduler/lanes.h"
#include "third_party/absl/str_cat.h"
#include "worker/engine/engine_core.h"

namespace tessera::worker {
namespace {

using Draw = EngineStep::Draw;
using Scheduled = EngineStep::Scheduled;
using ScoreRow = EngineStep::ScoreRow;

absl::Status NotFinite(int64_t position) {
  return absl::InternalError(StrCat(
      "the model produced logits that are not finite (NaN or infinity) at position ", position,
      ": its weights are damaged, or values overflow (try the coordinator's --dtype "
      "float32)"));
}

bool MatcherGaveUp(const Sequence& sequence) {
  return sequence.matcher != nullptr && !sequence.matcher->status().ok();
}

absl::Status NothingToPick(const Sequence& sequence, int64_t position, int64_t vocabulary) {
  const Submission& submission = *sequence.submission;
  if (!submission.request.grammar().empty()) {
    return absl::InvalidArgumentError(StrCat(
        "no token is left to pick at position ", position,
        ": the model has none that the form of the answer lets follow, or logit_bias bans them"));
  }
  return absl::InvalidArgumentError(
      StrCat("no token is left to pick at position ", position, ": min_tokens ",
             submission.request.min_tokens(), " bans ", submission.stop_ids.size(),
             " stop ids, and allowed_token_ids, bad_words and logit_bias the rest, of a "
             "vocabulary of ",
             vocabulary));
}

// Whether the step in flight has drafts of it, or the next one may have.
bool WaitsForDrafts(const Sequence& sequence) {
  if (sequence.drafter == nullptr || sequence.draws_in_flight == 0) return false;
  return sequence.draws_in_flight > 1 || sequence.drafter->MayProposeNext(sequence.tokens);
}

}  // namespace

// What scheduler::StartLanes asks for, at one moment.
class EngineCore::LaneStarter {
 public:
  LaneStarter(EngineCore* core, double now_seconds, Events* events)
      : core_(*core), now_seconds_(now_seconds), events_(events) {}

  int count() const { return core_.table_.lanes(); }
  bool Busy(int lane) const { return core_.lanes_[lane].in_flight() > 0; }
  bool Holds(int lane) const { return !core_.table_.running(lane).empty(); }
  bool Start(int lane) { return core_.BeginStep(lane, now_seconds_, events_); }
  void MergeIntoFirst() { core_.table_.MergeLanes(); }

 private:
  EngineCore& core_;
  const double now_seconds_;
  Events* const events_;
};

void EngineCore::BeginSteps(double now_seconds, Events* events) {
  for (const auto& submission : table_.Overdue(now_seconds)) {
    EndSubmission(submission,
                  absl::DeadlineExceededError(StrCat("not started within queue_timeout_seconds = ",
                                                     submission->request.queue_timeout_seconds())),
                  events);
  }
  if (!table_.changed() || !executor_->Broken().ok()) return;
  table_.set_changed(false);
  hand_over_.GiveRooms();
  LaneStarter starter(this, now_seconds, events);
  scheduler::StartLanes(starter);
  // Another lane's step would have come first.
  const int only = in_flight_.size() == 1 ? in_flight_.front() : -1;
  if (only >= 0 && MayRunAhead(only)) BeginStep(only, now_seconds, events);
  UpdateLoad();
}

void EngineCore::Step(const std::function<double()>& clock, Events* events) {
  BeginSteps(clock(), events);
  if (!in_flight_.empty()) EndStep(clock, events);
}

// Whether a step may be begun behind the one in flight.
bool EngineCore::MayRunAhead(int lane) const {
  if (lanes_[lane].in_flight() != 1 || !executor_->MayRunAhead()) return false;
  const auto running = table_.running(lane);
  return std::none_of(running.begin(), running.end(), [](const auto& sequence) {
    const Submission& submission = *sequence->submission;
    return sequence->steps_in_flight > 0 &&
           (sequence->history != nullptr || sequence->matcher != nullptr ||
            submission.bans.follow_output() || submission.NeedsScores() ||
            submission.request.has_kv_target() || WaitsForDrafts(*sequence));
  });
}

bool EngineCore::BeginStep(int index, double now_seconds, Events* events) {
  Lane& lane = lanes_[index];
  EngineStep& step = lane.next();
  hand_over_.TakeJoining(index);
  do {  // ends: a plan without rows that makes progress takes something out of the lane or the
        // queue
    if (table_.running(index).empty() && table_.waiting().empty()) return false;
    const scheduler::StepPlan& plan = builder_.Plan(index);
    if (!plan.MakesProgress()) return false;
    if (lane.in_flight() > 0 && plan.GivesUpAny()) return false;
    const bool waits = builder_.Schedule(index, now_seconds, &step, events);
    if (step.scheduled.empty() && (lane.in_flight() > 0 || waits)) return false;
  } while (step.scheduled.empty());
  builder_.Fill(&step);
  hand_over_.CollectPushes(&step);
  step.arrays.Seal();
  if (const absl::Status status = executor_->Begin(step.work()); !status.ok()) {
    if (executor_->Broken().ok()) FailStep(index, step, status, events);
    return false;
  }
  for (const Scheduled& s : step.scheduled) {
    ++s.sequence->steps_in_flight;
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
  const int index = in_flight_.front();
  EngineStep& step = lanes_[index].oldest();
  in_flight_.pop_front();
  const absl::Status status = executor_->Take(&outcome_);
  const double now_seconds = clock();
  ++lanes_[index].ended;
  table_.set_changed(true);
  for (const Draw& draw : step.draws) --draw.sequence->draws_in_flight;
  for (const Scheduled& s : step.scheduled) {
    --s.sequence->steps_in_flight;
    s.sequence->rows_in_flight -= s.rows;
  }
  const auto has_ended = [](const Sequence& s) { return s.state == SequenceState::kEnded; };
  if (status.ok()) DropFromStep(step, [&](const auto& row) { return has_ended(*row.sequence); });
  std::erase_if(step.scheduled, [&](const Scheduled& s) { return has_ended(*s.sequence); });
  table_.DestroyEnded(index);
  const uint64_t prompt_tokens_before = load_.prompt_tokens();
  if (status.ok()) {
    DropRefusedDrafts(step);
    EndWithoutToken(step, events);
    Distribute(step, now_seconds, events);
    GiveBackDrafts(index);
  } else if (executor_->Broken().ok()) {
    FailStep(index, step, status, events);
  }
  CountStep(lanes_[index], step, load_.prompt_tokens() > prompt_tokens_before, now_seconds);
  UpdateLoad();
}

// Where steps overlap, one counts from when the one before came back.
void EngineCore::CountStep(Lane& lane, const EngineStep& step, bool prefill, double now_seconds) {
  load_.set_steps(load_.steps() + 1);
  const double seconds = now_seconds - std::max(step.began_seconds, last_end_seconds_);
  const double of_lane = now_seconds - std::max(step.began_seconds, lane.last_end_seconds);
  last_end_seconds_ = lane.last_end_seconds = now_seconds;
  if (prefill) {
    load_.set_prefill_steps(load_.prefill_steps() + 1);
    load_.set_prefill_step_seconds(load_.prefill_step_seconds() + seconds);
  } else {
    load_.set_decode_step_seconds(load_.decode_step_seconds() + seconds);
    builder_.NoteStep(step.arrays.rows(), of_lane);
  }
}

// Leaves of each list of drafts those that stand, and of the draws the one behind each of them.
void EngineCore::DropRefusedDrafts(EngineStep& step) {
  Draw* first = nullptr;  // of the list in hand
  bool stands = true;
  for (size_t i = 0; i < step.draws.size(); ++i) {
    Draw& draw = step.draws[i];
    if (draw.drafts_before == 0) {
      first = &draw;
      stands = true;
      continue;
    }
    // The token that a draft is tried for is drawn by the row before it.
    stands = stands && outcome_.samples[i - 1].token_id == step.draws[i - 1].drafts.front() &&
             outcome_.samples[i].token_id >= 0;
    draw.refused = !stands;
    first->accepted += stands ? 1 : 0;
  }
  for (const Draw& draw : step.draws) {
    if (draw.drafts_before > 0 || draw.drafts.empty()) continue;
    draw.sequence->drafter->Note(std::ssize(draw.drafts), draw.accepted);
    builder_.NoteDrafts(std::ssize(draw.drafts), draw.accepted);
    load_.set_drafts(load_.drafts() + 1);
    load_.set_draft_tokens(load_.draft_tokens() + draw.drafts.size());
    while (load_.accepted_draft_tokens_size() < std::ssize(draw.drafts)) {
      load_.add_accepted_draft_tokens(0);
    }
    for (int i = 0; i < draw.accepted; ++i) {
      load_.set_accepted_draft_tokens(i, load_.accepted_draft_tokens(i) + 1);
    }
  }
  DropFromStep(step, [](const auto& row) {
    if constexpr (requires { row.refused; }) return row.refused;
    return false;
  });
}

// The blocks of drafts that did not stand. No step of the lane is in flight behind one with drafts.
void EngineCore::GiveBackDrafts(int lane) {
  for (const auto& sequence : table_.running(lane)) {
    if (sequence->drafter != nullptr && sequence->steps_in_flight == 0)
      memory_.GiveBackDrafts(sequence.get());
  }
}

// Takes rows that `drops` names out of a step, with their outcome.
template <typename Predicate>
void EngineCore::DropFromStep(EngineStep& step, const Predicate& drops) {
  const auto drop = [&](auto& rows, auto& outcomes) {
    size_t kept = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (drops(rows[i])) continue;
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
void EngineCore::EndWithoutToken(EngineStep& step, Events* events) {
  std::map<uint64_t, absl::Status> broken;  // by arrival; the first reason of each counts
  for (size_t i = 0; i < step.draws.size(); ++i) {
    if (outcome_.samples[i].token_id >= 0) continue;
    const Sequence& sequence = *step.draws[i].sequence;
    if (MatcherGaveUp(sequence)) continue;  // TakeToken ends this choice alone
    const int64_t position = sequence.known_tokens() + step.draws[i].drafts_before;
    broken.try_emplace(sequence.submission->arrival,
                       outcome_.samples[i].token_id == kernels::kNothingToPick
                           ? NothingToPick(sequence, position, options_.vocabulary)
                           : NotFinite(position));
  }
  for (size_t i = 0; i < step.score_rows.size(); ++i) {
    if (std::isfinite(outcome_.scores[i].chosen().logprob())) continue;
    const ScoreRow& row = step.score_rows[i];
    broken.try_emplace(row.sequence->submission->arrival, NotFinite(row.position));
  }
  if (broken.empty()) return;

  const auto is_broken = [&](const Sequence& s) { return broken.contains(s.submission->arrival); };
  DropFromStep(step, [&](const auto& row) { return is_broken(*row.sequence); });
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

void EngineCore::AddRowSums(const EngineStep& step) {
  int32_t added = 0;
  for (const EngineStep::ScoreRow& row : step.score_rows) {
    const bool is_new = row.sum != 0 && row.sum != added;
    if (!is_new || row.sum > std::ssize(outcome_.row_sums)) continue;
    added = row.sum;
    const std::vector<float>& values = outcome_.row_sums[added - 1];
    std::vector<double>& sum = row.sequence->submission->row_sum;
    sum.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
  }
}

void EngineCore::Distribute(EngineStep& step, double now_seconds, Events* events) {
  for (size_t i = 0; i < step.score_rows.size(); ++i) {
    step.score_rows[i].sequence->submission->prompt_logprobs.push_back(
        std::move(outcome_.scores[i]));
  }
  AddRowSums(step);
  uint64_t prompt_tokens = 0;
  for (Scheduled& s : step.scheduled) {
    Sequence* sequence = s.sequence;
    Submission* submission = sequence->submission.get();
    const int64_t before = sequence->computed_tokens;
    sequence->computed_tokens += s.rows - std::ssize(s.drafts);
    const int64_t end = std::min(sequence->computed_tokens, submission->prompt_tokens);
    prompt_tokens += std::max<int64_t>(0, end - before);
    memory_.Index(sequence);
    states_.Keep(&s);
    memory_.FreeBehindWindow(sequence);
    if (sequence->computed_tokens >= submission->prompt_tokens) table_.ReleaseHeld(submission);
  }
  load_.set_prompt_tokens(load_.prompt_tokens() + prompt_tokens);
  load_.set_generation_tokens(load_.generation_tokens() + step.draws.size());
  CloseEchoes(step, now_seconds, events);
  const Sequence* ended = nullptr;  // may be gone
  for (size_t i = 0; i < step.draws.size(); ++i) {
    const Draw& draw = step.draws[i];
    if (draw.sequence == ended) continue;
    if (!TakeToken(draw, outcome_.samples[i], now_seconds, events)) ended = draw.sequence;
  }
}

// Ends the choices that wanted no token, whose prompt is now computed.
void EngineCore::CloseEchoes(const EngineStep& step, double now_seconds, Events* events) {
  for (const Scheduled& s : step.scheduled) {
    Sequence* sequence = s.sequence;
    if (sequence->submission->request.max_tokens() > sequence->output_tokens()) continue;
    if (sequence->computed_tokens < sequence->known_tokens()) continue;
    AddEvent(sequence, now_seconds, events)->set_finish(v1::FINISH_REASON_LENGTH);
    table_.Move(sequence, SequenceState::kEnded);
  }
}

// False: the sequence ended.
bool EngineCore::TakeToken(const Draw& draw, SampleResult& result, double now_seconds,
                           Events* events) {
  Sequence* const sequence = draw.sequence;
  const Submission& submission = *sequence->submission;
  // The row of the token before was a draft's, which stands. A state does not have it yet.
  if (draw.drafts_before > 0 && !memory_.has_seats()) {
    ++sequence->computed_tokens;
    memory_.Index(sequence);
  }
  if (sequence->matcher != nullptr && !sequence->matcher->Accept(result.token_id)) {
    absl::Status reason = sequence->matcher->status();
    if (reason.ok()) {
      reason =
          absl::InternalError(StrCat("token ", result.token_id, " was drawn against the grammar"));
    }
    table_.End(sequence, reason, events);
    return false;
  }
  v1::TokenEvent* event = AddEvent(sequence, now_seconds, events);
  if (draw.drafts_before == 0) {
    event->set_draft_tokens(static_cast<int32_t>(draw.drafts.size()));
    event->set_accepted_draft_tokens(draw.accepted);
  }
  event->set_has_token(true);
  event->set_token_id(result.token_id);
  event->set_position(sequence->known_tokens());
  if (submission.request.top_logprobs() >= 0) *event->mutable_logprobs() = result.logprobs;
  event->mutable_final_row()->Add(result.final_row.begin(), result.final_row.end());
  if (submission.request.mean_rows() && sequence->output_tokens() == 0) {
    for (int i = 0; i < event->final_row_size(); ++i) {
      const double before = submission.row_sum.empty() ? 0 : submission.row_sum[i];
      event->set_final_row(i, static_cast<float>((before + event->final_row(i)) /
                                                 static_cast<double>(submission.prompt_tokens)));
    }
  }
  sequence->tokens.push_back(result.token_id);
  if (sequence->history != nullptr) sequence->history->AddOutput(result.token_id);
  if (sequence->drafter != nullptr && !result.drafts.empty()) {
    sequence->drafter->Take(sequence->known_tokens(), std::move(result.drafts));
  }

  if (std::binary_search(submission.stop_ids.begin(), submission.stop_ids.end(), result.token_id)) {
    event->set_finish(v1::FINISH_REASON_STOP);
    event->set_stop_token_id(result.token_id);
  } else if (sequence->output_tokens() >= submission.request.max_tokens() ||
             sequence->known_tokens() >= LongestSequence(options_)) {
    event->set_finish(v1::FINISH_REASON_LENGTH);
  }
  if (event->finish() != v1::FINISH_REASON_UNSPECIFIED) {
    builder_.NoteAnswer(sequence->output_tokens());
    table_.Move(sequence, SequenceState::kEnded);
    return false;
  }
  if (submission.request.has_kv_target()) {
    hand_over_.Send(sequence, now_seconds, events);
  }
  return true;
}

void EngineCore::FailStep(int lane, const EngineStep& step, const absl::Status& status,
                          Events* events) {
  for (const Scheduled& s : step.scheduled) {
    // A submission lives or dies as one: choices of it that were not in this step end as well, and
    // those of it that were are gone when their turn comes.
    if (table_.Runs(lane, s.sequence)) {
      EndSubmission(std::shared_ptr(s.sequence->submission), status, events);
    }
  }
}

}  // namespace tessera::worker
