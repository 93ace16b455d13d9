// How sequences end: each way gives back its blocks, tells its choice's listener once, and forgets
// the submission with its last choice.
#include <algorithm>
#include <utility>

#include "third_party/absl/str_cat.h"
#include "worker/engine/engine_core.h"

namespace tessera::worker {

void EngineCore::Finish(std::unique_ptr<Sequence> sequence) {
  const std::shared_ptr<Submission> submission = sequence->submission;
  changed_ = true;
  if (sequence->steps_in_flight > 0) {
    sequence->ended = true;
    lanes_[sequence->step_lane].ended.push_back(std::move(sequence));
  } else {
    sequence.reset();
  }
  CloseChoice(submission);
}

void EngineCore::CloseChoice(const std::shared_ptr<Submission>& submission) {
  if (--submission->open_choices == 0) {
    if (!submission->started) LeaveQueue(*submission);
    submissions_.erase(submission->request.submission_id());
    return;
  }
  // Choices are held only while one sequence computes the prompt; where that one ends early, the
  // next takes over.
  if (!submission->held.empty() &&
      submission->open_choices == static_cast<int32_t>(submission->held.size())) {
    std::unique_ptr<Sequence> next = std::move(submission->held.back());
    submission->held.pop_back();
    const SequenceRank rank = next->rank;
    waiting_[rank] = std::move(next);
  }
}

void EngineCore::AddEnd(const Sequence& sequence, const absl::Status& status, Events* events) {
  v1::TokenEvent& event = events->emplace_back();
  event.set_submission_id(sequence.submission->request.submission_id());
  event.set_attempt(sequence.submission->request.attempt());
  event.set_choice(sequence.rank.choice);
  if (absl::IsCancelled(status)) {
    event.set_finish(v1::FINISH_REASON_CANCELLED);
  } else {
    event.set_finish(v1::FINISH_REASON_ERROR);
    event.set_error(std::string(StdView(status.message())));
    event.set_error_code(static_cast<int32_t>(status.code()));
  }
}

void EngineCore::End(std::unique_ptr<Sequence> sequence, const absl::Status& status,
                     Events* events) {
  AddEnd(*sequence, status, events);
  Finish(std::move(sequence));
}

void EngineCore::EndSubmission(const std::shared_ptr<Submission>& borrowed,
                               const absl::Status& status, Events* events) {
  const std::shared_ptr<Submission> submission = borrowed;  // outlives its entry in submissions_
  std::vector<std::unique_ptr<Sequence>> held = std::move(submission->held);
  submission->held.clear();
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (it->second->submission != submission) {
      ++it;
      continue;
    }
    std::unique_ptr<Sequence> sequence = std::move(it->second);
    it = waiting_.erase(it);
    End(std::move(sequence), status, events);
  }
  for (std::unique_ptr<Sequence>& sequence : TakeMoving(submission)) {
    End(std::move(sequence), status, events);
  }
  const KvKey key{submission->request.submission_id(), submission->request.attempt()};
  if (auto sent = sending_.extract(key)) End(std::move(sent.mapped().sequence), status, events);
  for (Lane& lane : lanes_) {
    for (size_t i = 0; i < lane.running.size();) {
      if (lane.running[i]->submission != submission) {
        ++i;
        continue;
      }
      std::unique_ptr<Sequence> sequence = std::move(lane.running[i]);
      lane.running.erase(lane.running.begin() + i);
      End(std::move(sequence), status, events);
    }
  }
  for (auto it = held.rbegin(); it != held.rend(); ++it) End(std::move(*it), status, events);
}

void EngineCore::Cancel(const v1::Cancel& cancel, Events* events) {
  const auto open = submissions_.find(cancel.submission_id());
  if (open == submissions_.end() || open->second->request.attempt() != cancel.attempt()) {
    DropRoom({cancel.submission_id(), cancel.attempt()});
    return UpdateLoad();
  }
  const std::shared_ptr<Submission> submission = open->second;
  const absl::Status status = absl::CancelledError("cancelled");
  const v1::Submit& request = submission->request;
  const bool only_choice = request.has_kv_target() || !request.kv_ticket().empty();
  if (cancel.choice() < 0 || (only_choice && cancel.choice() == request.first_choice())) {
    EndSubmission(submission, status, events);
    return UpdateLoad();
  }
  const SequenceRank rank{submission->request.priority(), submission->turn, submission->arrival,
                          cancel.choice()};
  const auto is_it = [&](const std::unique_ptr<Sequence>& s) { return s->rank == rank; };
  std::unique_ptr<Sequence> found;
  if (const auto waiting = waiting_.find(rank); waiting != waiting_.end()) {
    found = std::move(waiting->second);
    waiting_.erase(waiting);
  }
  const auto take = [&](std::vector<std::unique_ptr<Sequence>>& list) {
    const auto it = std::find_if(list.begin(), list.end(), is_it);
    if (it == list.end()) return;
    found = std::move(*it);
    list.erase(it);
  };
  for (Lane& lane : lanes_) take(lane.running);
  take(submission->held);
  if (found != nullptr) End(std::move(found), status, events);
  UpdateLoad();
}

void EngineCore::EndAll(const absl::Status& status, Events* events) {
  while (!submissions_.empty()) EndSubmission(submissions_.begin()->second, status, events);
  while (!rooms_.empty()) DropRoom(rooms_.begin()->first);
  UpdateLoad();
}

}  // namespace tessera::worker
