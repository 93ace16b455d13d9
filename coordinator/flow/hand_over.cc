// Requests whose prompt one replica computes and another decodes.
#include <algorithm>
#include <utility>

#include "coordinator/flow/request_flow.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {

void RequestFlow::AskForRoom(const Replica& prefill, Replica& decode, Part part) {
  const GenerationRequest& request = part.generation->request();
  part.state = Part::State::kAsking;
  part.link = prefill.link;
  part.room_deadline_seconds = options_.now_seconds() + options_.recovery_timeout_seconds;
  Room& room = part.room.emplace();
  room.link = decode.link;
  room.submission_id = next_submission_id_++;
  room.attempt = part.attempt;
  room.sequences = request.choice_count;
  room.output_tokens = int64_t{request.max_tokens} * request.choice_count - 1;
  v1::SessionRequest message;
  v1::Reserve& reserve = *message.mutable_reserve();
  reserve.set_submission_id(room.submission_id);
  reserve.set_attempt(room.attempt);
  reserve.mutable_prompt_token_ids()->Add(request.prompt_token_ids.begin(),
                                          request.prompt_token_ids.end());
  reserve.set_cache_salt(request.cache_salt);
  reserve.set_request_group(request.group);
  reserve.set_turn(request.turn);
  *reserve.mutable_senders() = prefill.link->ready().kv_shares();
  reserve.set_codec(pairs_.CodecOf(prefill.link->replica(), decode.link->replica()));
  // The prompt may wait for its turn at the prefill replica.
  reserve.set_lease_seconds(2 * options_.recovery_timeout_seconds);
  CountRoom(room, 1);
  decode.asked_seconds = options_.now_seconds();
  Add(room.submission_id, std::move(part));
  // A link that was lost this moment reports so, and the request goes on without room then.
  decode.link->Send(std::move(message));
}

void RequestFlow::OnReserved(const std::shared_ptr<ReplicaLink>& link,
                             const v1::Reserved& reserved) {
  Part part;
  {
    std::lock_guard lock(mutex_);
    const auto found = parts_.find(reserved.submission_id());
    if (found == parts_.end() || found->second.state != Part::State::kAsking ||
        found->second.room->link != link || found->second.room->attempt != reserved.attempt()) {
      return;  // cancelled, or too late
    }
    part = Take(reserved.submission_id());
    part.room->target = reserved.target();
    const auto prefill = replicas_.find(part.link->replica());
    if (reserved.has_target() && prefill != replicas_.end() && prefill->second.load.ready)
      return SubmitForHandOver(prefill->second, std::move(part));
    if (reserved.has_target()) {
      GiveRoomBack(*part.room);
    } else {
      CountRoom(*part.room, -1);
    }
  }
  const absl::Status reason =
      reserved.has_target()
          ? absl::UnavailableError("replica " + part.link->replica() + " is gone")
          : absl::Status(static_cast<absl::StatusCode>(reserved.error_code()), reserved.error());
  PlaceWithoutRoom(part, reason);
}

void RequestFlow::SubmitForHandOver(Replica& replica, Part part) {
  const GenerationRequest& request = part.generation->request();
  part.choice_count = 1;
  part.later_choices = request.choice_count - 1;
  part.prompt_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
  part.unspent_output_tokens = 1;  // the room counts the others
  const uint64_t id = next_submission_id_++;
  v1::SessionRequest message = SubmitOf(id, part, {});
  v1::Submit& submit = *message.mutable_submit();
  LimitWait(part, &submit);
  submit.set_kv_codec(v1::KV_CODEC_RAW);
  *submit.mutable_kv_target() = part.room->target;
  Run(replica, id, std::move(part), std::move(message));
}

void RequestFlow::SubmitArrived(Replica& replica, Part part, const Room& room,
                                const OpenChoice& choice) {
  part.first_choice = choice.choice;
  part.choice_count = 1;
  part.prompt_pending = false;
  part.unspent_output_tokens =
      part.generation->request().max_tokens - static_cast<int64_t>(choice.output_token_ids.size());
  v1::SessionRequest message = SubmitOf(room.submission_id, part, choice.output_token_ids);
  message.mutable_submit()->set_kv_ticket(room.target.ticket());
  message.mutable_submit()->set_kv_codec(room.target.codec());
  Run(replica, room.submission_id, std::move(part), std::move(message));
}

// The first choice goes on from the KV; the others find the prompt's blocks in its prefix index.
void RequestFlow::GoOnAtDecode(uint64_t submission_id, const v1::KvTransfer& transfer) {
  if (!parts_.at(submission_id).room.has_value()) return;
  Part part = Take(submission_id);
  const Room room = *std::exchange(part.room, std::nullopt);
  CountRoom(room, -1);  // what goes on there counts by itself
  Unload(part);
  const std::string& prefill = part.link->replica();
  const auto prompt = static_cast<int64_t>(part.generation->request().prompt_token_ids.size());
  const double bytes_per_second = pairs_.NoteArrived(prefill, room.link->replica(),
                                                     prompt - room.target.first_token(), transfer);
  if (bytes_per_second > 0) {
    Logger("coordinator")
        .info("KV from {} to {} goes over {}: {} bytes, {:.1f} MB/s measured", prefill,
              room.link->replica(), transfer.transport(), transfer.bytes(), bytes_per_second / 1e6);
  }
  Part next = GoOn(part, absl::UnavailableError("replica " + room.link->replica() + " was lost"));
  next.attempt = room.attempt;
  next.link = room.link;
  if (next.choices.empty()) return;
  const auto decode = replicas_.find(room.link->replica());
  if (decode == replicas_.end() || decode->second.link != room.link) {
    ++next.attempt;
    return AwaitReplica(std::move(next), false);  // lost meanwhile: wherever there is a replica
  }
  const std::vector<OpenChoice> open = std::exchange(next.choices, {});
  SubmitArrived(decode->second, next, room, open[0]);
  if (open.size() > 1) {
    SubmitChoices(decode->second, std::move(next), open[1].choice,
                  static_cast<int32_t>(open.size()) - 1, {}, room.target.codec());
  }
}

void RequestFlow::NoteFailedHandOver(const Part& part, const absl::Status& reason) {
  // Another error than that of the KV's way says nothing about the pair.
  if (!part.room.has_value() || !absl::IsDataLoss(reason)) return;
  const std::string& prefill = part.link->replica();
  const std::string& decode = part.room->link->replica();
  const double seconds = pairs_.NoteFailed(prefill, decode, options_.now_seconds());
  Logger("coordinator")
      .warn("KV from {} to {}: {}; retry in {:.0f} s", prefill, decode,
            std::string(reason.message()), seconds);
}

std::vector<HandOverRecord> RequestFlow::hand_overs() const {
  std::lock_guard lock(mutex_);
  return pairs_.Records(options_.now_seconds());
}

void RequestFlow::CountRoom(const Room& room, int sign) {
  const auto replica = replicas_.find(room.link->replica());
  if (replica == replicas_.end() || replica->second.link != room.link) return;
  scheduler::NoteSubmitted(0, sign * room.sequences, sign * room.output_tokens,
                           &replica->second.load);
  replica->second.awaited_sequences += sign * room.sequences;
}

void RequestFlow::GiveRoomBack(const Room& room) {
  CountRoom(room, -1);
  v1::SessionRequest message;
  v1::Cancel& cancel = *message.mutable_cancel();
  cancel.set_submission_id(room.submission_id);
  cancel.set_attempt(room.attempt);
  cancel.set_choice(-1);
  room.link->Send(std::move(message));
}

void RequestFlow::EndReservations(const std::shared_ptr<ReplicaLink>& link) {
  std::vector<Part> ended;
  {
    std::lock_guard lock(mutex_);
    if (CountOf(Part::State::kAsking) == 0) return;
    const double now = options_.now_seconds();
    std::vector<uint64_t> over;
    for (const auto& [id, part] : parts_) {
      if (part.state != Part::State::kAsking) continue;
      if (link == nullptr ? part.room_deadline_seconds <= now : part.room->link == link)
        over.push_back(id);
    }
    for (const uint64_t id : over) {
      ended.push_back(Take(id));
      if (link == nullptr) GiveRoomBack(*ended.back().room);
    }
  }
  for (const Part& part : ended) {
    const std::string& decode = part.room->link->replica();
    const absl::Status reason =
        link == nullptr ? absl::UnavailableError("no room for its KV at " + decode + " in time")
                        : absl::UnavailableError("replica " + decode + " was lost");
    PlaceWithoutRoom(part, reason);
  }
}

void RequestFlow::PlaceWithoutRoom(const Part& part, const absl::Status& reason) {
  Logger("coordinator")
      .info("request {} is not handed over: {}", part.generation->request().request_id,
            std::string(reason.message()));
  Part next = GoOn(part, reason);
  next.link = part.room->link;
  Place(std::move(next));
}

}  // namespace tessera::coordinator
