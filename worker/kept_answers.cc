#include "worker/kept_answers.h"

#include <iterator>
#include <utility>
#include <vector>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {

// Owners may hold any byte, so their length stands before them.
std::string KeptAnswers::NameOf(const std::string& owner, const std::string& request_id) {
  return StrCat(owner.size(), ":", owner, request_id);
}

KeptAnswers::Answer* KeptAnswers::Running(const void* session, uint64_t submission_id,
                                          uint32_t attempt) {
  const auto found = by_submission_.find(submission_id);
  if (found == by_submission_.end()) return nullptr;
  Answer& answer = *found->second;
  const bool same = answer.session == session && answer.kept.submit().attempt() == attempt;
  return same ? &answer : nullptr;
}

void KeptAnswers::NoteSubmit(const void* session, const v1::Submit& submit) {
  if (submit.owner().empty() || submit.choice_count() > 1) return;
  Answer answer;
  answer.name = NameOf(submit.owner(), submit.request_id());
  answer.session = session;
  *answer.kept.mutable_submit() = submit;
  *answer.kept.mutable_output_token_ids() = submit.output_token_ids();
  answer.bytes = answer.kept.SpaceUsedLong() + answer.name.size();

  std::lock_guard lock(mutex_);
  DropExpired();
  if (by_submission_.contains(submit.submission_id())) End(submit.submission_id());
  if (const auto before = by_name_.find(answer.name); before != by_name_.end()) {
    const uint64_t id = before->second->kept.submit().submission_id();
    if (by_submission_.contains(id)) End(id);
    Drop(ended_, before->second);
  }
  bytes_ += answer.bytes;
  running_.push_back(std::move(answer));
  const auto place = std::prev(running_.end());
  by_name_[place->name] = place;
  by_submission_[submit.submission_id()] = place;
  KeepLimits();
}

void KeptAnswers::NoteCancel(const void* session, const v1::Cancel& cancel) {
  std::lock_guard lock(mutex_);
  if (Running(session, cancel.submission_id(), cancel.attempt()) != nullptr)
    End(cancel.submission_id());
}

void KeptAnswers::NoteReply(const void* session, const v1::SessionReply& reply) {
  std::lock_guard lock(mutex_);
  for (const v1::TokenEvent& event : reply.events()) {
    Answer* const answer = Running(session, event.submission_id(), event.attempt());
    if (answer == nullptr || event.choice() != answer->kept.submit().first_choice()) continue;
    if (event.has_token()) {
      answer->kept.add_output_token_ids(event.token_id());
      answer->bytes += sizeof(int32_t);
      bytes_ += sizeof(int32_t);
    }
    if (event.finish() != v1::FINISH_REASON_UNSPECIFIED) End(event.submission_id());
  }
  DropExpired();
  KeepLimits();
}

void KeptAnswers::NoteEnd(const void* session) {
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> ids;
  for (const Answer& answer : running_) {
    if (answer.session == session) ids.push_back(answer.kept.submit().submission_id());
  }
  for (const uint64_t id : ids) End(id);
}

void KeptAnswers::DropOld() {
  std::lock_guard lock(mutex_);
  DropExpired();
}

absl::StatusOr<v1::KeptAnswer> KeptAnswers::Find(const v1::FindKeptRequest& request) {
  std::lock_guard lock(mutex_);
  DropExpired();
  const auto found = by_name_.find(NameOf(request.owner(), request.request_id()));
  if (request.owner().empty() || found == by_name_.end())
    return absl::NotFoundError("no answer of that id and owner is kept");
  return found->second->kept;
}

void KeptAnswers::End(uint64_t submission_id) {
  const auto found = by_submission_.find(submission_id);
  const Answers::iterator answer = found->second;
  by_submission_.erase(found);
  answer->until_seconds = clock_seconds_() + limits_.seconds;
  ended_.splice(ended_.end(), running_, answer);
}

void KeptAnswers::Drop(Answers& from, Answers::iterator answer) {
  bytes_ -= answer->bytes;
  by_name_.erase(answer->name);
  from.erase(answer);
}

void KeptAnswers::DropExpired() {
  const double now = clock_seconds_();
  while (!ended_.empty() && ended_.front().until_seconds <= now) Drop(ended_, ended_.begin());
}

void KeptAnswers::KeepLimits() {
  while (bytes_ > limits_.bytes || running_.size() + ended_.size() > limits_.answers) {
    if (ended_.empty()) End(running_.front().kept.submit().submission_id());
    Drop(ended_, ended_.begin());
  }
}

}  // namespace tessera::worker
