#include "worker/engine/token_events.h"

#include <algorithm>
#include <string>

#include "third_party/absl/str_cat.h"
#include "worker/engine/engine_admission.h"

namespace tessera::worker {

v1::TokenEvent* AddEvent(Sequence* sequence, double now_seconds, TokenEvents* events) {
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

void AddEnd(const Sequence& sequence, const absl::Status& status, TokenEvents* events) {
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

void AddRefusal(const v1::Submit& submit, const absl::Status& status, TokenEvents* events) {
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

}  // namespace tessera::worker
