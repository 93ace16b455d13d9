// Hand-over of KV: room for prompts that other replicas compute, sequences that go on from it, and
// sequences whose KV is sent away.
#include <algorithm>
#include <utility>

#include "scheduler/lanes.h"
#include "third_party/absl/str_cat.h"
#include "worker/engine/engine_core.h"

namespace tessera::worker {
namespace {

constexpr double kUsualLeaseSeconds = 60;

kvcache::KvShare ToKvShare(const v1::KvShare& share) {
  const auto range = [](const v1::Range& r) {
    return kvcache::IndexRange{static_cast<int32_t>(r.begin()), static_cast<int32_t>(r.end())};
  };
  return {range(share.layers()), range(share.kv_heads())};
}

v1::Reserved RefusalOf(const v1::Reserve& reserve, const absl::Status& status) {
  v1::Reserved answer;
  answer.set_submission_id(reserve.submission_id());
  answer.set_attempt(reserve.attempt());
  answer.set_error(std::string(StdView(status.message())));
  answer.set_error_code(static_cast<int32_t>(status.code()));
  return answer;
}

}  // namespace

void EngineCore::Reserve(v1::Reserve reserve) {
  absl::Status status = CheckReserve(reserve, options_);
  if (mover_ == nullptr) {
    status = absl::FailedPreconditionError("this worker takes no KV of other replicas");
  } else if (status.ok() && static_cast<int64_t>(rooms_waiting_.size()) >= options_.max_waiting) {
    status = absl::ResourceExhaustedError(
        StrCat(rooms_waiting_.size(), " prompts wait for room; the limit is ", options_.max_waiting,
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
  KvRoomOf room(&pool_);
  room.tokens.assign(reserve.prompt_token_ids().begin(), reserve.prompt_token_ids().end());
  room.turn = {room_turns_.Enter(0, reserve.request_group()), ++arrivals_};
  room.request = std::move(reserve);
  rooms_waiting_.emplace(room.turn, key);
  rooms_.emplace(key, std::move(room));
  changed_ = true;
}

// In fair turns; as the batcher admits, one block more for each running sequence must be
// free, so that the room is not the cause of the next preemption.
void EngineCore::GiveRooms() {
  while (!rooms_waiting_.empty()) {
    const KvKey key = rooms_waiting_.begin()->second;
    KvRoomOf& room = rooms_.at(key);
    const auto tokens = static_cast<int64_t>(room.tokens.size());
    const Sharing sharing =
        SharingOf(options_, tokens, room.request.cache_salt(), room.request.codec());
    const int64_t indexed = std::min(tokens - 1, sharing.indexed_tokens);
    kvcache::PrefixMatch match;
    if (indexed >= options_.limits.block_tokens) {
      match = index_.Find(sharing.salt, std::span(room.tokens).first(indexed));
    }
    const auto found = static_cast<int64_t>(match.blocks.size());
    const int64_t blocks =
        scheduler::BlocksFor(tokens + 1, options_.limits.block_tokens) - found + match.idle_blocks;
    if (pool_.free_blocks() < blocks + running_sequences()) return;
    StopWaiting(room, /*given=*/true);
    for (const int32_t block : match.blocks) {
      pool_.AddReference(block);
      room.blocks.Adopt(block);
    }
    room.cached_blocks = found;
    room.node = match.node;
    room.blocks.Grow(tokens + 1);
    room.has_blocks = true;
    std::vector<kvcache::KvShare> senders;
    for (const v1::KvShare& sender : room.request.senders()) senders.push_back(ToKvShare(sender));
    const double lease = room.request.lease_seconds();
    mover_->Expect({key, room.blocks.blocks(), found * options_.limits.block_tokens, tokens,
                    room.request.codec()},
                   senders, lease > 0 ? lease : kUsualLeaseSeconds);
  }
}

void EngineCore::StopWaiting(const KvRoomOf& room, bool given) {
  rooms_waiting_.erase(room.turn);
  room_turns_.Leave(0, room.request.request_group(), room.turn.first, given);
}

void EngineCore::OnKvExpected(const KvKey& key, const absl::StatusOr<v1::KvTarget>& target) {
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

void EngineCore::DropRoom(const KvKey& key) {
  const auto found = rooms_.find(key);
  if (found == rooms_.end()) return;
  const KvRoomOf& room = found->second;
  if (!room.has_blocks) StopWaiting(room, /*given=*/false);
  if (room.has_blocks && !room.arrived && mover_ != nullptr) mover_->Forget(key);
  rooms_.erase(found);
  changed_ = true;
}

// False: there is no such room, or not for these tokens.
bool EngineCore::WaitForKv(std::unique_ptr<Sequence>* sequence) {
  const v1::Submit& request = (*sequence)->submission->request;
  const auto found = rooms_.find({request.submission_id(), request.attempt()});
  if (found == rooms_.end()) return false;
  KvRoomOf& room = found->second;
  const int64_t prompt = (*sequence)->submission->prompt_tokens;
  const bool fits = !room.ticket.empty() && room.ticket == request.kv_ticket() &&
                    (*sequence)->known_tokens() > prompt &&
                    std::equal(room.tokens.begin(), room.tokens.end(), (*sequence)->tokens.begin(),
                               (*sequence)->tokens.begin() + prompt);
  if (!fits) {
    DropRoom(found->first);
    return false;
  }
  room.sequence = std::move(*sequence);
  if (room.arrived) Join(found->first);
  return true;
}

// The sequence decodes on from the KV in its room, as soon as a lane takes it.
void EngineCore::Join(const KvKey& key) {
  KvRoomOf& room = rooms_.at(key);
  std::unique_ptr<Sequence> sequence = std::move(room.sequence);
  sequence->blocks = std::move(room.blocks);
  sequence->computed_tokens = static_cast<int64_t>(room.tokens.size());
  sequence->indexed_blocks = room.cached_blocks;
  sequence->node = room.node;
  Submission* submission = sequence->submission.get();
  submission->started = sequence->started = true;
  sequence->started_seconds = submission->submitted_seconds;
  LeaveQueue(*submission);
  IndexBlocks(sequence.get());
  rooms_.erase(key);
  joining_.push_back(std::move(sequence));
  changed_ = true;
}

void EngineCore::TakeJoining(Lane& lane) {
  const int64_t quota =
      scheduler::JoinQuota(running_sequences(), static_cast<int64_t>(lane.running.size()),
                           static_cast<int64_t>(lanes_.size()));
  for (int64_t i = 0; i < quota && !joining_.empty(); ++i) {
    const auto place =
        std::upper_bound(lane.running.begin(), lane.running.end(), joining_.front(),
                         [](const auto& a, const auto& b) { return a->rank < b->rank; });
    lane.running.insert(place, std::move(joining_.front()));
    joining_.pop_front();
  }
}

void EngineCore::OnKvArrived(const KvKey& key, const absl::Status& status) {
  const auto found = rooms_.find(key);
  if (found == rooms_.end()) return;
  KvRoomOf& room = found->second;
  changed_ = true;
  if (status.ok()) {
    room.arrived = true;
    if (room.sequence != nullptr) Join(key);
    return;
  }
  std::unique_ptr<Sequence> sequence = std::move(room.sequence);
  DropRoom(key);
  if (sequence == nullptr) return;
  const SequenceRank rank = sequence->rank;  // it is computed here
  waiting_[rank] = std::move(sequence);
}

// What the step in hand completes of prompts that are handed over.
void EngineCore::CollectPushes(LaneStep& step) {
  step.pushes.clear();
  for (size_t i = 0; i < step.scheduled.size(); ++i) {
    Sequence& sequence = *step.scheduled[i].sequence;
    Submission& submission = *sequence.submission;
    const v1::Submit& request = submission.request;
    if (!request.has_kv_target() || submission.handed_over.has_value()) continue;
    const int64_t first =
        std::max<int64_t>(request.kv_target().first_token(), sequence.pushed_tokens);
    const int64_t end =
        std::min(sequence.computed_tokens + step.scheduled[i].rows, submission.prompt_tokens);
    if (first >= end) continue;
    const KvKey key{request.submission_id(), request.attempt()};
    if (sequence.sending == nullptr) {
      mover_->Send(key, request.kv_target());
      sequence.sending = std::make_unique<KvSending>(&mover_, key);
    }
    sequence.pushed_tokens = end;
    step.pushes.push_back({key.first, key.second, static_cast<int32_t>(i), first, end,
                           submission.prompt_tokens, &request.kv_target()});
  }
}

// Its blocks return before its prompt is whole.
void EngineCore::DropSending(Sequence& sequence) {
  if (sequence.sending == nullptr) return;
  sequence.sending.reset();
  sequence.submission->handed_over = {absl::AbortedError("the prompt was preempted"), {}};
}

void EngineCore::HandOver(std::unique_ptr<Sequence> sequence, double now_seconds, Events* events) {
  KvSent sent{std::move(sequence), now_seconds};
  const Submission& submission = *sent.sequence->submission;
  const v1::Submit& request = submission.request;
  if (submission.handed_over.has_value()) return EndHandOver(std::move(sent), now_seconds, events);
  sending_[{request.submission_id(), request.attempt()}] = std::move(sent);
}

void EngineCore::OnKvSent(const KvKey& key, const absl::Status& status,
                          const v1::KvTransfer& transfer, double now_seconds, Events* events) {
  const auto open = submissions_.find(key.first);
  if (open == submissions_.end() || open->second->request.attempt() != key.second) return;
  Submission& submission = *open->second;
  if (submission.handed_over.has_value()) return;
  submission.handed_over = {status, transfer};
  if (auto sent = sending_.extract(key)) {
    EndHandOver(std::move(sent.mapped()), now_seconds, events);
  }
  UpdateLoad();
}

void EngineCore::EndHandOver(KvSent sent, double now_seconds, Events* events) {
  KvHandOver& done = *sent.sequence->submission->handed_over;
  changed_ = true;
  if (!done.status.ok()) {
    // ABORTED: this replica's own doing, or the room there has gone, as where the prompt waited for
    // longer than its lease. DATA_LOSS: the way to the other one.
    const std::string reason =
        StrCat("the KV could not be handed over: ", std::string(StdView(done.status.message())));
    End(std::move(sent.sequence),
        absl::IsAborted(done.status) || absl::IsFailedPrecondition(done.status)
            ? absl::AbortedError(reason)
            : absl::DataLossError(reason),
        events);
    return;
  }
  v1::TokenEvent* event = AddEvent(sent.sequence.get(), now_seconds, events);
  event->set_finish(v1::FINISH_REASON_HANDED_OVER);
  *event->mutable_kv_transfer() = std::move(done.transfer);
  event->mutable_kv_transfer()->set_exposed_seconds(now_seconds - sent.since_seconds);
  Finish(std::move(sent.sequence));
}

// What a submission that ends has in rooms and on the way; the sequences are told of by the caller.
std::vector<std::unique_ptr<Sequence>> EngineCore::TakeMoving(
    const std::shared_ptr<Submission>& submission) {
  std::vector<std::unique_ptr<Sequence>> taken;
  const KvKey key{submission->request.submission_id(), submission->request.attempt()};
  if (const auto room = rooms_.find(key); room != rooms_.end()) {
    if (room->second.sequence != nullptr) taken.push_back(std::move(room->second.sequence));
    DropRoom(key);
  }
  for (std::unique_ptr<Sequence>& sequence : joining_) {
    if (sequence->submission == submission) taken.push_back(std::move(sequence));
  }
  std::erase(joining_, nullptr);
  return taken;
}

}  // namespace tessera::worker
