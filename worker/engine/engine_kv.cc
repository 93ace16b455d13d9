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
  const RoomKey key{reserve.submission_id(), reserve.attempt()};
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
  room.request = std::move(reserve);
  rooms_.emplace(key, std::move(room));
  rooms_waiting_.push_back(key);
  changed_ = true;
}

// First come, first served; as the batcher admits, one block more for each running sequence must be
// free, so that the room is not the cause of the next preemption.
void EngineCore::GiveRooms() {
  while (!rooms_waiting_.empty()) {
    const RoomKey key = rooms_waiting_.front();
    KvRoomOf& room = rooms_.at(key);
    const auto tokens = static_cast<int64_t>(room.tokens.size());
    const Sharing sharing = SharingOf(options_, tokens, room.request.cache_salt());
    const int64_t indexed = std::min(tokens - 1, sharing.indexed_tokens);
    kvcache::PrefixMatch match;
    if (indexed >= options_.limits.block_tokens) {
      match = index_.Find(sharing.salt, std::span(room.tokens).first(indexed));
    }
    const auto found = static_cast<int64_t>(match.blocks.size());
    const int64_t blocks =
        scheduler::BlocksFor(tokens + 1, options_.limits.block_tokens) - found + match.idle_blocks;
    if (pool_.free_blocks() < blocks + running_sequences()) return;
    rooms_waiting_.pop_front();
    for (const int32_t block : match.blocks) {
      pool_.AddReference(block);
      room.blocks.Adopt(block);
    }
    room.cached_blocks = found;
    room.node = match.node;
    room.blocks.Grow(tokens + 1);
    const double lease = room.request.lease_seconds();
    v1::Reserved answer;
    answer.set_submission_id(key.first);
    answer.set_attempt(key.second);
    *answer.mutable_target() = mover_->Expect(
        {key.first, key.second, room.blocks.blocks(), found * options_.limits.block_tokens, tokens},
        lease > 0 ? lease : kUsualLeaseSeconds);
    room.ticket = answer.target().ticket();
    reserved_.push_back(std::move(answer));
  }
}

void EngineCore::DropRoom(const RoomKey& key) {
  const auto found = rooms_.find(key);
  if (found == rooms_.end()) return;
  const KvRoomOf& room = found->second;
  if (room.ticket.empty()) std::erase(rooms_waiting_, key);
  if (!room.ticket.empty() && !room.arrived) mover_->Forget(room.ticket);
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
void EngineCore::Join(const RoomKey& key) {
  KvRoomOf& room = rooms_.at(key);
  std::unique_ptr<Sequence> sequence = std::move(room.sequence);
  sequence->blocks = std::move(room.blocks);
  sequence->computed_tokens = static_cast<int64_t>(room.tokens.size());
  sequence->indexed_blocks = room.cached_blocks;
  sequence->node = room.node;
  Submission* submission = sequence->submission.get();
  submission->started = sequence->started = true;
  sequence->started_seconds = submission->submitted_seconds;
  --queued_submissions_;
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

void EngineCore::OnKvArrived(uint64_t submission_id, uint32_t attempt, const absl::Status& status) {
  const auto found = rooms_.find({submission_id, attempt});
  if (found == rooms_.end()) return;
  KvRoomOf& room = found->second;
  changed_ = true;
  room.arrived = true;  // or will never: either way nothing more is written
  if (status.ok()) {
    if (room.sequence != nullptr) Join(found->first);
    return;
  }
  std::unique_ptr<Sequence> sequence = std::move(room.sequence);
  rooms_.erase(found);
  if (sequence == nullptr) return;
  const SequenceRank rank = sequence->rank;  // it is computed here
  waiting_[rank] = std::move(sequence);
}

void EngineCore::HandOver(std::unique_ptr<Sequence> sequence) {
  const v1::Submit& request = sequence->submission->request;
  const v1::KvTarget target = request.kv_target();
  const KvPlace place = {request.submission_id(), request.attempt(), sequence->blocks.blocks(),
                         target.first_token(), sequence->submission->prompt_tokens};
  sending_[{place.submission_id, place.attempt}] = std::move(sequence);
  mover_->Send(target, place);
}

void EngineCore::OnKvSent(uint64_t submission_id, uint32_t attempt, const absl::Status& status,
                          double now_seconds, Events* events) {
  const auto found = sending_.find({submission_id, attempt});
  if (found == sending_.end()) return;
  std::unique_ptr<Sequence> sequence = std::move(found->second);
  sending_.erase(found);
  changed_ = true;
  if (sequence->ended) return UpdateLoad();
  if (status.ok()) {
    AddEvent(sequence.get(), now_seconds, events)->set_finish(v1::FINISH_REASON_HANDED_OVER);
    Finish(std::move(sequence));
  } else {
    End(std::move(sequence),
        absl::AbortedError(
            StrCat("the KV could not be handed over: ", std::string(StdView(status.message())))),
        events);
  }
  UpdateLoad();
}

// What a submission that ends has in rooms and on the way; the sequences are told of by the caller.
std::vector<std::unique_ptr<Sequence>> EngineCore::TakeMoving(
    const std::shared_ptr<Submission>& submission) {
  std::vector<std::unique_ptr<Sequence>> taken;
  const RoomKey key{submission->request.submission_id(), submission->request.attempt()};
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
