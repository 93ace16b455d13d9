#include "worker/engine/hand_over.h"

#include <algorithm>
#include <memory>
#include <span>

#include "scheduler/lanes.h"
#include "third_party/absl/str_cat.h"
#include "worker/engine/kv_messages.h"

namespace tessera::worker {
namespace {

constexpr double kUsualLeaseSeconds = 60;

v1::Reserved RefusalOf(const v1::Reserve& reserve, const absl::Status& status) {
  v1::Reserved answer;
  answer.set_submission_id(reserve.submission_id());
  answer.set_attempt(reserve.attempt());
  answer.set_error(std::string(StdView(status.message())));
  answer.set_error_code(static_cast<int32_t>(status.code()));
  return answer;
}

}  // namespace

void HandOver::Reserve(v1::Reserve reserve) {
  absl::Status status = CheckReserve(reserve, options_);
  if (mover_ == nullptr) {
    status = absl::FailedPreconditionError("this worker takes no KV of other replicas");
  } else if (status.ok() && static_cast<int64_t>(waiting_.size()) >= options_.max_waiting) {
    status = absl::ResourceExhaustedError(
        StrCat(waiting_.size(), " prompts wait for room; the limit is ", options_.max_waiting,
               " (max_waiting): try again later"));
  }
  const KvKey key{reserve.submission_id(), reserve.attempt()};
  if (status.ok() && rooms_.contains(key)) {
    status = absl::AlreadyExistsError(
        StrCat("room is kept for submission ", key.first, " attempt ", key.second, " already"));
  }
  if (!status.ok()) {
    reserved_.push_back(RefusalOf(reserve, status));
    return;
  }
  Room room(memory_.pools(), memory_.has_seats() ? &memory_.exchanges() : nullptr);
  room.tokens.assign(reserve.prompt_token_ids().begin(), reserve.prompt_token_ids().end());
  room.turn = {turns_.Enter(0, reserve.request_group(), reserve.turn()), ++arrivals_};
  room.request = std::move(reserve);
  waiting_.emplace(room.turn, key);
  rooms_.emplace(key, std::move(room));
  table_.set_changed(true);
}

// In fair turns; as the batcher admits, one block more for each running sequence must be
// free, so that the room is not the cause of the next preemption.
void HandOver::GiveRooms() {
  while (!waiting_.empty()) {
    const KvKey key = waiting_.begin()->second;
    Room& room = rooms_.at(key);
    const auto tokens = static_cast<int64_t>(room.tokens.size());
    const Sharing sharing =
        SharingOf(options_, tokens, room.request.cache_salt(), room.request.codec());
    const int64_t indexed = std::min(tokens - 1, sharing.indexed_tokens);
    const kvcache::PrefixMatch match = memory_.MatchBlocks(
        sharing.salt, std::span(room.tokens).first(std::max<int64_t>(0, indexed)));
    const auto found = static_cast<int64_t>(match.blocks.size());
    const int64_t blocks =
        scheduler::BlocksFor(tokens + 1, memory_.block_tokens()) - found + match.idle_blocks;
    if (memory_.free_blocks() < blocks + table_.running_count()) return;
    if (!memory_.HasRoomForWindow(tokens, table_.running_count())) return;
    if (!room.exchange.Take()) return;
    StopWaiting(room, /*given=*/true);
    memory_.Adopt(match, &room.blocks);
    room.cached_blocks = found;
    room.node = match.node;
    room.blocks.Grow(tokens + 1);
    memory_.TakeWindow(tokens, match, &room.window_blocks);
    room.has_blocks = true;
    std::vector<kvcache::KvShare> senders;
    for (const v1::KvShare& sender : room.request.senders()) senders.push_back(ToKvShare(sender));
    const double lease = room.request.lease_seconds();
    const int64_t first = found * memory_.block_tokens();
    mover_->Expect({key, room.blocks.blocks(), first, tokens, room.request.codec(),
                    room.window_blocks.blocks(), std::max(first, memory_.FirstInWindow(tokens)),
                    room.exchange.number()},
                   senders, lease > 0 ? lease : kUsualLeaseSeconds);
  }
}

void HandOver::StopWaiting(const Room& room, bool given) {
  waiting_.erase(room.turn);
  turns_.Leave(0, room.request.request_group(), room.turn.first, given);
}

void HandOver::OnKvExpected(const KvKey& key, const absl::StatusOr<v1::KvTarget>& target) {
  const auto found = rooms_.find(key);
  if (found == rooms_.end()) return;
  if (!target.ok()) {
    reserved_.push_back(RefusalOf(found->second.request, target.status()));
    return DropRoom(key);
  }
  found->second.ticket = target->ticket();
  v1::Reserved answer;
  answer.set_submission_id(key.first);
  answer.set_attempt(key.second);
  *answer.mutable_target() = *target;
  reserved_.push_back(std::move(answer));
}

void HandOver::DropRoom(const KvKey& key) {
  const auto found = rooms_.find(key);
  if (found == rooms_.end()) return;
  const Room& room = found->second;
  if (!room.has_blocks) StopWaiting(room, /*given=*/false);
  if (room.has_blocks && !room.arrived && mover_ != nullptr) mover_->Forget(key);
  rooms_.erase(found);
  table_.set_changed(true);
}

bool HandOver::Await(Sequence* sequence) {
  const v1::Submit& request = sequence->submission->request;
  const KvKey key{request.submission_id(), request.attempt()};
  const auto found = rooms_.find(key);
  if (found == rooms_.end()) return false;
  Room& room = found->second;
  const int64_t prompt = sequence->submission->prompt_tokens;
  const bool fits = !room.ticket.empty() && room.ticket == request.kv_ticket() &&
                    sequence->known_tokens() > prompt &&
                    std::equal(room.tokens.begin(), room.tokens.end(), sequence->tokens.begin(),
                               sequence->tokens.begin() + prompt);
  if (!fits) {
    DropRoom(key);
    return false;
  }
  table_.Move(sequence, SequenceState::kArriving);
  room.sequence = sequence;
  if (room.arrived) Join(key);
  return true;
}

// The sequence decodes on from the KV in its room, as soon as a lane takes it.
void HandOver::Join(const KvKey& key) {
  Room& room = rooms_.at(key);
  Sequence* sequence = room.sequence;
  sequence->blocks = std::move(room.blocks);
  sequence->window_blocks = std::move(room.window_blocks);
  sequence->states.arrived = room.exchange.number() >= 0;
  sequence->states.exchange = std::move(room.exchange);
  sequence->computed_tokens = static_cast<int64_t>(room.tokens.size());
  sequence->indexed_blocks = room.cached_blocks;
  sequence->node = room.node;
  sequence->started = true;
  sequence->started_seconds = sequence->submission->submitted_seconds;
  table_.Start(sequence->submission.get());
  memory_.Index(sequence);
  rooms_.erase(key);
  table_.Move(sequence, SequenceState::kJoining);
}

void HandOver::TakeJoining(int lane) {
  const int64_t quota = scheduler::JoinQuota(table_.running_count(),
                                             static_cast<int64_t>(table_.running(lane).size()),
                                             static_cast<int64_t>(table_.lanes()));
  for (int64_t i = 0; i < quota; ++i) {
    Sequence* next = table_.NextJoining();
    if (next == nullptr || !next->seat.Take()) return;
    table_.Move(next, SequenceState::kRunning, lane);
  }
}

void HandOver::OnKvArrived(const KvKey& key, const absl::Status& status) {
  const auto found = rooms_.find(key);
  if (found == rooms_.end()) return;
  Room& room = found->second;
  table_.set_changed(true);
  if (status.ok()) {
    room.arrived = true;
    if (room.sequence != nullptr) Join(key);
    return;
  }
  Sequence* sequence = room.sequence;
  DropRoom(key);
  if (sequence != nullptr) table_.Move(sequence, SequenceState::kWaiting);  // computed here
}

void HandOver::CollectPushes(EngineStep* step) {
  step->pushes.clear();
  for (size_t i = 0; i < step->scheduled.size(); ++i) {
    Sequence& sequence = *step->scheduled[i].sequence;
    Submission& submission = *sequence.submission;
    const v1::Submit& request = submission.request;
    if (!request.has_kv_target() || submission.handed_over.has_value()) continue;
    const int64_t first =
        std::max<int64_t>(request.kv_target().first_token(), sequence.pushed_tokens);
    const int64_t end =
        std::min(sequence.computed_tokens + step->scheduled[i].rows, submission.prompt_tokens);
    if (first >= end) continue;
    const v1::KvTarget& target = request.kv_target();
    const int64_t kept = memory_.FirstInWindow(submission.prompt_tokens);
    if (std::max(target.first_token(), target.window_first_token()) < kept) {
      submission.handed_over = {
          absl::FailedPreconditionError(
              StrCat("layers with a window keep tokens from ", kept, " on here; the other replica ",
                     "asks for those from ", target.window_first_token(), " on: both need the ",
                     "same --max-model-len and --block-size of their coordinator")),
          {}};
      continue;
    }
    const KvKey key{request.submission_id(), request.attempt()};
    if (sequence.sending == nullptr) {
      mover_->Send(key, request.kv_target());
      sequence.sending = std::make_unique<KvSending>(&mover_, key);
    }
    sequence.pushed_tokens = end;
    step->pushes.push_back({key.first, key.second, static_cast<int32_t>(i), first, end,
                            submission.prompt_tokens, &request.kv_target()});
    const int32_t exchange = sequence.states.exchange.number();
    if (end < submission.prompt_tokens || exchange < 0) continue;
    step->pushes.back().exchange = exchange;
    step->saves.push_back(
        {static_cast<int32_t>(i), StateCopy::Exchange(exchange), 0, static_cast<int32_t>(end)});
  }
}

void HandOver::Send(Sequence* sequence, double now_seconds, TokenEvents* events) {
  table_.Move(sequence, SequenceState::kSent);
  const Sent sent{sequence, now_seconds};
  const Submission& submission = *sequence->submission;
  if (submission.handed_over.has_value()) return EndSending(sent, now_seconds, events);
  sent_[{submission.request.submission_id(), submission.request.attempt()}] = sent;
}

void HandOver::OnKvSent(const KvKey& key, const absl::Status& status,
                        const v1::KvTransfer& transfer, double now_seconds, TokenEvents* events) {
  const std::shared_ptr<Submission> submission = table_.Find(key);
  if (submission == nullptr || submission->handed_over.has_value()) return;
  submission->handed_over = {status, transfer};
  if (const auto sent = sent_.extract(key)) EndSending(sent.mapped(), now_seconds, events);
}

void HandOver::EndSending(const Sent& sent, double now_seconds, TokenEvents* events) {
  KvHandOver& done = *sent.sequence->submission->handed_over;
  if (!done.status.ok()) {
    // ABORTED: this replica's own doing, or the room there has gone, as where the prompt waited for
    // longer than its lease. DATA_LOSS: the way to the other one.
    const std::string reason =
        StrCat("the KV could not be handed over: ", std::string(StdView(done.status.message())));
    table_.End(sent.sequence,
               absl::IsAborted(done.status) || absl::IsFailedPrecondition(done.status)
                   ? absl::AbortedError(reason)
                   : absl::DataLossError(reason),
               events);
    return;
  }
  v1::TokenEvent* event = AddEvent(sent.sequence, now_seconds, events);
  event->set_finish(v1::FINISH_REASON_HANDED_OVER);
  *event->mutable_kv_transfer() = std::move(done.transfer);
  event->mutable_kv_transfer()->set_exposed_seconds(now_seconds - sent.since_seconds);
  table_.Move(sent.sequence, SequenceState::kEnded);
}

void HandOver::Drop(const KvKey& key) {
  DropRoom(key);
  sent_.erase(key);
}

void HandOver::DropAll() {
  while (!rooms_.empty()) DropRoom(rooms_.begin()->first);
}

}  // namespace tessera::worker
