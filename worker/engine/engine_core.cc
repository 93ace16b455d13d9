// Admission and planning: everything of EngineCore up to the point where a step can run.
#include "worker/engine/engine_core.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

bool RanksBefore(const std::unique_ptr<Sequence>& a, const std::unique_ptr<Sequence>& b) {
  return a->rank < b->rank;
}

}  // namespace

StepLimits EngineCore::LimitsOf(const EngineOptions& options) {
  StepLimits limits;
  limits.max_tokens = options.limits.max_batched_tokens;
  limits.max_sequences = options.limits.max_sequences;
  limits.max_logit_rows = options.limits.max_logit_rows;
  limits.max_blocks_per_sequence =
      scheduler::BlocksFor(options.max_model_len_tokens, options.limits.block_tokens);
  return limits;
}

EngineCore::EngineCore(const EngineOptions& options, std::unique_ptr<StepExecutor> executor)
    : options_(options),
      lane_limits_(scheduler::LimitsOfMicroBatch(options.limits, executor->lanes())),
      pool_(static_cast<int32_t>(options.limits.total_blocks),
            static_cast<int32_t>(options.limits.block_tokens)),
      index_(&pool_),
      next_deadline_seconds_(std::numeric_limits<double>::infinity()),
      executor_(std::move(executor)) {
  for (int i = 0; i < executor_->lanes(); ++i) {
    lanes_.emplace_back(LimitsOf(options), executor_->runs_ahead() ? 2 : 1);
  }
  load_.set_kv_blocks_total(pool_.total_blocks());
}

bool EngineCore::Busy() const {
  return !waiting_.empty() || !in_flight_.empty() || !joining_.empty() || !rooms_waiting_.empty() ||
         std::any_of(lanes_.begin(), lanes_.end(),
                     [](const Lane& l) { return !l.running.empty(); });
}

int64_t EngineCore::sequences() const {
  int64_t count = 0;
  for (const auto& [id, submission] : submissions_) count += submission->open_choices;
  return count;
}

void EngineCore::Submit(v1::Submit submit, double now_seconds, Events* events) {
  if (const auto open = submissions_.find(submit.submission_id()); open != submissions_.end()) {
    const uint32_t attempt = open->second->request.attempt();
    if (submit.attempt() <= attempt) {
      return Refuse(submit,
                    absl::FailedPreconditionError(
                        StrCat("submission ", submit.submission_id(), " attempt ", submit.attempt(),
                               " is stale: attempt ", attempt, " is running")),
                    events);
    }
    EndSubmission(open->second, absl::CancelledError("a newer attempt replaced it"), events);
  }
  absl::Status status = CheckSubmit(submit, options_);
  if (status.ok() && submit.has_kv_target() && mover_ == nullptr) {
    status = absl::FailedPreconditionError("this worker hands no KV over to other replicas");
  }
  if (status.ok() && queued_submissions_ >= options_.max_waiting) {
    status = absl::ResourceExhaustedError(
        StrCat(queued_submissions_, " submissions are waiting; the limit is ", options_.max_waiting,
               " (max_waiting): try again later"));
  }
  if (!status.ok()) return Refuse(submit, status, events);

  const uint64_t arrival = ++arrivals_;
  const uint64_t turn = turns_.Enter(submit.priority(), submit.request_group());
  auto submission = MakeSubmission(std::move(submit), options_, arrival, turn, now_seconds);
  const v1::Submit& request = submission->request;
  submissions_[request.submission_id()] = submission;
  ++queued_submissions_;
  next_deadline_seconds_ = std::min(next_deadline_seconds_, submission->deadline_seconds);
  for (int32_t i = request.choice_count() - 1; i >= 0; --i) {
    submission->held.push_back(MakeSequence(submission, request.first_choice() + i, &pool_));
  }
  std::unique_ptr<Sequence> first = std::move(submission->held.back());
  submission->held.pop_back();
  changed_ = true;
  const bool computes =
      request.max_tokens() > request.output_token_ids_size() || request.prompt_logprobs() >= 0;
  if (computes && !request.kv_ticket().empty() && WaitForKv(&first)) {
    // It goes on when its KV is there.
  } else if (computes) {
    waiting_[first->rank] = std::move(first);
  } else {  // nothing was asked that needs the model
    v1::TokenEvent* event = AddEvent(first.get(), now_seconds, events);
    event->set_finish(v1::FINISH_REASON_LENGTH);
    std::vector<std::unique_ptr<Sequence>> held = std::move(submission->held);
    Finish(std::move(first));
    for (auto it = held.rbegin(); it != held.rend(); ++it) {
      AddEvent(it->get(), now_seconds, events)->set_finish(v1::FINISH_REASON_LENGTH);
      Finish(std::move(*it));
    }
  }
  UpdateLoad();
}

void EngineCore::Refuse(const v1::Submit& submit, const absl::Status& status, Events* events) {
  // A refused count may be any number: the first ones' ends are enough to hear of it.
  for (int32_t i = 0; i < std::clamp(submit.choice_count(), 1, kMaxChoices); ++i) {
    v1::TokenEvent& event = events->emplace_back();
    event.set_submission_id(submit.submission_id());
    event.set_attempt(submit.attempt());
    // Unsigned, because a refused first_choice may be any number too.
    event.set_choice(static_cast<int32_t>(static_cast<uint32_t>(submit.first_choice()) + i));
    event.set_finish(v1::FINISH_REASON_ERROR);
    event.set_error(std::string(StdView(status.message())));
    event.set_error_code(static_cast<int32_t>(status.code()));
  }
}

void EngineCore::RefuseOverdue(double now_seconds, Events* events) {
  if (now_seconds < next_deadline_seconds_) return;
  next_deadline_seconds_ = std::numeric_limits<double>::infinity();
  std::vector<std::shared_ptr<Submission>> overdue;
  for (const auto& [id, submission] : submissions_) {
    if (submission->started) continue;
    if (submission->deadline_seconds <= now_seconds) {
      overdue.push_back(submission);
    } else {
      next_deadline_seconds_ = std::min(next_deadline_seconds_, submission->deadline_seconds);
    }
  }
  for (const auto& submission : overdue) {
    EndSubmission(submission,
                  absl::DeadlineExceededError(StrCat("not started within queue_timeout_seconds = ",
                                                     submission->request.queue_timeout_seconds())),
                  events);
  }
}

kvcache::PrefixMatch EngineCore::Match(const Sequence& sequence) const {
  const Submission& submission = *sequence.submission;
  // The last known token is always computed: its logits are wanted.
  int64_t tokens = std::min(sequence.known_tokens() - 1, submission.indexed_tokens);
  if (submission.NeedsScores()) {  // rows that are not computed have no logits to score
    tokens = std::min(tokens, static_cast<int64_t>(submission.prompt_logprobs.size()) - 1);
  }
  if (tokens < options_.limits.block_tokens) return {};
  return index_.Find(submission.salt, std::span(sequence.tokens).first(tokens));
}

int64_t EngineCore::ExpectedTokens(const Sequence& sequence) const {
  const Submission& submission = *sequence.submission;
  const int64_t answer =
      answers_.Expected(sequence.output_tokens(), submission.request.max_tokens());
  return std::min(submission.prompt_tokens + answer, LongestSequence(options_));
}

void EngineCore::Plan(const Lane& lane) {
  running_snapshot_.clear();
  // Counting exclusive blocks is the one part that costs O(blocks): only where a step could run out
  // of them.
  const int64_t most_wanted =
      static_cast<int64_t>(lane.running.size()) +
      scheduler::BlocksFor(options_.limits.max_batched_tokens, options_.limits.block_tokens);
  const bool scarce = pool_.free_blocks() < most_wanted;
  for (const auto& sequence : lane.running) {
    // One that ends with the step in flight, whichever token that draws, computes nothing more.
    const int64_t then = sequence->tokens_then();
    const bool ends = sequence->draws_in_flight > 0 &&
                      (sequence->output_then() >= sequence->submission->request.max_tokens() ||
                       then >= LongestSequence(options_));
    running_snapshot_.push_back({then, ends ? then : sequence->computed_then(),
                                 static_cast<int64_t>(sequence->blocks.blocks().size()),
                                 scarce ? sequence->blocks.ExclusiveBlocks() : 0,
                                 sequence->submission->NeedsScores(), ExpectedTokens(*sequence)});
  }
  beside_snapshot_.clear();
  for (const Lane& other : lanes_) {
    if (&other == &lane) continue;
    for (const auto& sequence : other.running)
      beside_snapshot_.push_back({sequence->known_tokens(),
                                  static_cast<int64_t>(sequence->blocks.blocks().size()),
                                  ExpectedTokens(*sequence)});
  }
  waiting_snapshot_.clear();
  matches_.clear();
  const scheduler::BatchLimits& limits = lane_limits_;
  const size_t slots = std::min<size_t>(
      scheduler::kMostAdmitted, limits.max_sequences - static_cast<int64_t>(lane.running.size()));
  for (const auto& [rank, sequence] : waiting_) {
    if (waiting_snapshot_.size() >= slots) break;
    matches_.push_back(Match(*sequence));
    const kvcache::PrefixMatch& match = matches_.back();
    waiting_snapshot_.push_back(
        {sequence->known_tokens(), static_cast<int64_t>(match.blocks.size()) * limits.block_tokens,
         match.idle_blocks, sequence->submission->NeedsScores(), ExpectedTokens(*sequence)});
  }
  scheduler::PlanStep(limits,
                      {running_snapshot_, waiting_snapshot_, pool_.free_blocks(), beside_snapshot_},
                      &plan_);
}

bool EngineCore::MayRunAhead(const Lane& lane) const {
  if (lane.in_flight() != 1 || !executor_->MayRunAhead()) return false;
  return std::none_of(lane.running.begin(), lane.running.end(), [](const auto& sequence) {
    const Submission& submission = *sequence->submission;
    return sequence->steps_in_flight > 0 &&
           (sequence->history != nullptr || submission.bans.follow_output() ||
            submission.NeedsScores() || submission.request.has_kv_target());
  });
}

// Blocks are given back first, found ones taken second, and new ones allocated last: allocation may
// evict.
void EngineCore::ApplyPlan(Lane& lane, double now_seconds, Events* events) {
  std::vector<Scheduled>& scheduled = lane.next().scheduled;
  scheduled.clear();
  std::vector<std::unique_ptr<Sequence>> admitted;
  for (size_t i = 0; i < plan_.admitted_rows.size(); ++i) {
    admitted.push_back(std::move(waiting_.begin()->second));
    waiting_.erase(waiting_.begin());
  }
  GiveBack(lane, events);
  const size_t before = lane.running.size();
  for (size_t i = 0; i < admitted.size(); ++i) {
    if (plan_.admitted_rows[i] == scheduler::kNeverFits) {
      End(std::move(admitted[i]),
          absl::ResourceExhaustedError("the sequence has outgrown the KV pool"), events);
    } else {
      Admit(lane, std::move(admitted[i]), matches_[i], plan_.admitted_rows[i], now_seconds);
    }
  }
  std::inplace_merge(lane.running.begin(), lane.running.begin() + before, lane.running.end(),
                     RanksBefore);
  std::stable_partition(scheduled.begin(), scheduled.end(),
                        [](const Scheduled& s) { return s.rows == 1; });
  for (size_t i = 0; i < scheduled.size();) {
    Sequence* sequence = scheduled[i].sequence;
    if (sequence->blocks.Grow(sequence->computed_then() + scheduled[i].rows)) {
      ++i;
      continue;
    }
    scheduled.erase(scheduled.begin() + i);
    End(TakeRunning(sequence),
        absl::InternalError("the batcher planned more KV blocks than there are"), events);
  }
}

void EngineCore::GiveBack(Lane& lane, Events* events) {
  std::vector<std::unique_ptr<Sequence>> before = std::exchange(lane.running, {});
  for (size_t i = 0; i < before.size(); ++i) {
    std::unique_ptr<Sequence>& sequence = before[i];
    const int32_t rows = plan_.running_rows[i];
    if (rows == scheduler::kPreempted) {
      DropSending(*sequence);
      sequence->blocks.Clear();
      sequence->computed_tokens = sequence->indexed_blocks = 0;
      sequence->node = 0;
      load_.set_preemptions(load_.preemptions() + 1);
      const SequenceRank rank = sequence->rank;
      waiting_[rank] = std::move(sequence);
    } else if (rows == scheduler::kNeverFits) {
      End(std::move(sequence),
          absl::ResourceExhaustedError("the sequence has outgrown the KV pool"), events);
    } else {
      if (rows > 0) lane.next().scheduled.push_back({sequence.get(), rows, 0});
      lane.running.push_back(std::move(sequence));
    }
  }
}

void EngineCore::Admit(Lane& lane, std::unique_ptr<Sequence> sequence,
                       const kvcache::PrefixMatch& match, int64_t rows, double now_seconds) {
  for (const int32_t block : match.blocks) {
    pool_.AddReference(block);
    sequence->blocks.Adopt(block);
  }
  const int64_t cached = static_cast<int64_t>(match.blocks.size()) * options_.limits.block_tokens;
  sequence->computed_tokens = cached;
  sequence->indexed_blocks = static_cast<int64_t>(match.blocks.size());
  sequence->node = match.node;
  Submission* submission = sequence->submission.get();
  if (!submission->started) {
    submission->started = true;
    LeaveQueue(*submission);
    if (submission->counts_as_cache) {
      submission->cached_tokens = static_cast<int32_t>(std::min(cached, submission->prompt_tokens));
      load_.set_prefix_queries_tokens(load_.prefix_queries_tokens() + submission->prompt_tokens);
      load_.set_prefix_hits_tokens(load_.prefix_hits_tokens() + submission->cached_tokens);
    }
  }
  if (!sequence->started) {
    sequence->started = true;
    sequence->started_seconds = now_seconds;
  }
  lane.next().scheduled.push_back({sequence.get(), rows, 0});
  lane.running.push_back(std::move(sequence));
}

void EngineCore::LeaveQueue(const Submission& submission) {
  --queued_submissions_;
  turns_.Leave(submission.request.priority(), submission.request.request_group(), submission.turn,
               submission.started);
}

int64_t EngineCore::running_sequences() const {
  size_t running = joining_.size();
  for (const Lane& lane : lanes_) running += lane.running.size();
  return static_cast<int64_t>(running);
}

void EngineCore::MergeLanes() {
  std::vector<std::unique_ptr<Sequence>>& all = lanes_[0].running;
  for (size_t i = 1; i < lanes_.size(); ++i) {
    for (std::unique_ptr<Sequence>& sequence : lanes_[i].running) {
      all.push_back(std::move(sequence));
    }
    lanes_[i].running.clear();
  }
  std::sort(all.begin(), all.end(), RanksBefore);
}

std::unique_ptr<Sequence> EngineCore::TakeRunning(const Sequence* sequence) {
  for (Lane& lane : lanes_) {
    const auto it = std::find_if(lane.running.begin(), lane.running.end(),
                                 [sequence](const auto& s) { return s.get() == sequence; });
    if (it == lane.running.end()) continue;
    std::unique_ptr<Sequence> taken = std::move(*it);
    lane.running.erase(it);
    return taken;
  }
  return nullptr;  // not reached: the caller holds one that runs
}

void EngineCore::ResetLoad() {
  load_.Clear();
  load_.set_kv_blocks_total(pool_.total_blocks());
  UpdateLoad();
}

void EngineCore::UpdateLoad() {
  load_.set_running(static_cast<int32_t>(running_sequences()));
  load_.set_waiting(static_cast<int32_t>(waiting_.size()));
  load_.set_kv_blocks_used(pool_.total_blocks() - pool_.free_blocks());
}

}  // namespace tessera::worker
