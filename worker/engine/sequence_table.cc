#include "worker/engine/sequence_table.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace tessera::worker {
namespace {

using enum SequenceState;

bool RanksBefore(const std::unique_ptr<Sequence>& a, const std::unique_ptr<Sequence>& b) {
  return a->rank < b->rank;
}

// A preempted sequence is computed again from its first token; what it sent of its KV is of no use,
// because its blocks return before its prompt is whole.
void GiveUpKv(Sequence* sequence) {
  if (sequence->sending != nullptr) {
    sequence->sending.reset();
    sequence->submission->handed_over = {absl::AbortedError("the prompt was preempted"), {}};
  }
  sequence->blocks.Clear();
  sequence->window_blocks.Clear();
  sequence->seat.Clear();
  sequence->states = {};
  sequence->computed_tokens = sequence->indexed_blocks = 0;
  sequence->node = 0;
}

}  // namespace

bool IsLegalMove(SequenceState from, SequenceState to) {
  switch (from) {
    case kHeld: return to == kWaiting || to == kArriving || to == kEnded;
    case kWaiting: return to == kRunning || to == kEnded;
    case kArriving: return to == kJoining || to == kWaiting || to == kEnded;
    case kJoining: return to == kRunning || to == kEnded;
    case kRunning: return to == kWaiting || to == kSent || to == kEnded;
    case kSent: return to == kEnded;
    case kEnded: return false;
  }
  return false;
}

void SequenceTable::Move(Sequence* sequence, SequenceState to, int lane) {
  assert(IsLegalMove(sequence->state, to));
  assert((to == kRunning) == (lane >= 0));
  std::unique_ptr<Sequence> owned = Take(sequence);
  if (sequence->state == kRunning && to == kWaiting) GiveUpKv(sequence);
  sequence->state = to;
  if (to == kRunning) sequence->lane = lane;
  if (to == kJoining) changed_ = true;
  if (to != kEnded) return Put(std::move(owned));
  changed_ = true;
  const std::shared_ptr<Submission> submission = sequence->submission;
  if (sequence->steps_in_flight > 0) {
    Put(std::move(owned));
  } else {
    owned.reset();
  }
  CloseChoice(submission.get());
}

void SequenceTable::End(Sequence* sequence, const absl::Status& status, TokenEvents* events) {
  AddEnd(*sequence, status, events);
  Move(sequence, kEnded);
}

std::unique_ptr<Sequence> SequenceTable::TakeFrom(Sequences* sequences, const Sequence* sequence) {
  const auto it = std::find_if(sequences->begin(), sequences->end(),
                               [sequence](const auto& s) { return s.get() == sequence; });
  assert(it != sequences->end());
  std::unique_ptr<Sequence> taken = std::move(*it);
  sequences->erase(it);
  return taken;
}

std::unique_ptr<Sequence> SequenceTable::Take(Sequence* sequence) {
  switch (sequence->state) {
    case kHeld: return TakeFrom(&sequence->submission->held, sequence);
    case kWaiting: return std::move(waiting_.extract(sequence->rank).mapped());
    case kArriving: return TakeFrom(&arriving_, sequence);
    case kJoining: return TakeFrom(&joining_, sequence);
    case kRunning: return TakeFrom(&running_[sequence->lane], sequence);
    case kSent: return TakeFrom(&sent_, sequence);
    case kEnded: break;
  }
  return TakeFrom(&ended_[sequence->lane], sequence);
}

void SequenceTable::Put(std::unique_ptr<Sequence> sequence) {
  switch (sequence->state) {
    case kHeld: return sequence->submission->held.push_back(std::move(sequence));
    case kWaiting: {
      const SequenceRank rank = sequence->rank;
      waiting_[rank] = std::move(sequence);
      return;
    }
    case kArriving: return arriving_.push_back(std::move(sequence));
    case kJoining: return joining_.push_back(std::move(sequence));
    case kRunning: {
      Sequences& running = running_[sequence->lane];
      const auto place = std::upper_bound(running.begin(), running.end(), sequence, RanksBefore);
      running.insert(place, std::move(sequence));
      return;
    }
    case kSent: return sent_.push_back(std::move(sequence));
    case kEnded: return ended_[sequence->lane].push_back(std::move(sequence));
  }
}

void SequenceTable::DestroyEnded(int lane) {
  std::erase_if(ended_[lane], [](const auto& sequence) { return sequence->steps_in_flight == 0; });
}

void SequenceTable::MergeLanes() {
  Sequences& all = running_[0];
  for (size_t i = 1; i < running_.size(); ++i) {
    for (std::unique_ptr<Sequence>& sequence : running_[i]) {
      sequence->lane = 0;
      all.push_back(std::move(sequence));
    }
    running_[i].clear();
  }
  std::sort(all.begin(), all.end(), RanksBefore);
}

std::shared_ptr<Submission> SequenceTable::Open(v1::Submit submit, const EngineOptions& options,
                                                double now_seconds, const KvPools& pools) {
  const uint64_t arrival = ++arrivals_;
  const uint64_t turn = turns_.Enter(submit.priority(), submit.request_group(), submit.turn());
  auto submission = MakeSubmission(std::move(submit), options, arrival, turn, now_seconds);
  const v1::Submit& request = submission->request;
  submissions_[request.submission_id()] = submission;
  ++queued_submissions_;
  next_deadline_seconds_ = std::min(next_deadline_seconds_, submission->deadline_seconds);
  for (int32_t i = request.choice_count() - 1; i >= 0; --i) {
    auto sequence = MakeSequence(submission, request.first_choice() + i, pools);
    if (options.draft_source) sequence->drafter = std::make_unique<Drafter>(options.draft_source());
    submission->held.push_back(std::move(sequence));
  }
  changed_ = true;
  return submission;
}

std::shared_ptr<Submission> SequenceTable::Find(uint64_t submission_id) const {
  const auto open = submissions_.find(submission_id);
  return open == submissions_.end() ? nullptr : open->second;
}

std::shared_ptr<Submission> SequenceTable::Find(const KvKey& key) const {
  std::shared_ptr<Submission> open = Find(key.first);
  return open != nullptr && open->request.attempt() == key.second ? open : nullptr;
}

std::shared_ptr<Submission> SequenceTable::Any() const {
  return submissions_.empty() ? nullptr : submissions_.begin()->second;
}

void SequenceTable::Start(Submission* submission) {
  submission->started = true;
  LeaveQueue(*submission);
}

void SequenceTable::LeaveQueue(const Submission& submission) {
  --queued_submissions_;
  turns_.Leave(submission.request.priority(), submission.request.request_group(), submission.turn,
               submission.started);
}

std::vector<std::shared_ptr<Submission>> SequenceTable::Overdue(double now_seconds) {
  std::vector<std::shared_ptr<Submission>> overdue;
  if (now_seconds < next_deadline_seconds_) return overdue;
  next_deadline_seconds_ = std::numeric_limits<double>::infinity();
  for (const auto& [id, submission] : submissions_) {
    if (submission->started) continue;
    if (submission->deadline_seconds <= now_seconds) {
      overdue.push_back(submission);
    } else {
      next_deadline_seconds_ = std::min(next_deadline_seconds_, submission->deadline_seconds);
    }
  }
  return overdue;
}

void SequenceTable::CloseChoice(Submission* submission) {
  if (--submission->open_choices == 0) {
    if (!submission->started) LeaveQueue(*submission);
    submissions_.erase(submission->request.submission_id());
    return;
  }
  if (!submission->awaits_grammar && !submission->held.empty() &&
      submission->open_choices == static_cast<int32_t>(submission->held.size())) {
    Move(submission->held.back().get(), kWaiting);
  }
}

void SequenceTable::ReleaseHeld(Submission* submission) {
  while (!submission->held.empty()) Move(submission->held.back().get(), kWaiting);
}

std::vector<Sequence*> SequenceTable::Of(const Submission& submission) const {
  std::vector<Sequence*> found;
  const auto add = [&](const std::unique_ptr<Sequence>& sequence) {
    if (sequence->submission.get() == &submission) found.push_back(sequence.get());
  };
  for (const auto& [rank, sequence] : waiting_) add(sequence);
  for (const Sequences* list : {&arriving_, &joining_, &sent_}) {
    std::for_each(list->begin(), list->end(), add);
  }
  for (const Sequences& lane : running_) std::for_each(lane.begin(), lane.end(), add);
  std::for_each(submission.held.rbegin(), submission.held.rend(), add);
  return found;
}

Sequence* SequenceTable::Find(const Submission& submission, const SequenceRank& rank) const {
  for (Sequence* sequence : Of(submission)) {
    if (sequence->rank == rank) return sequence;
  }
  return nullptr;
}

bool SequenceTable::Runs(int lane, const Sequence* sequence) const {
  return std::any_of(running_[lane].begin(), running_[lane].end(),
                     [sequence](const auto& s) { return s.get() == sequence; });
}

int64_t SequenceTable::running_count() const {
  size_t running = joining_.size();
  for (const Sequences& lane : running_) running += lane.size();
  return static_cast<int64_t>(running);
}

int64_t SequenceTable::open_choices() const {
  int64_t count = 0;
  for (const auto& [id, submission] : submissions_) count += submission->open_choices;
  return count;
}

bool SequenceTable::HasWork() const { return !waiting_.empty() || running_count() > 0; }

}  // namespace tessera::worker
