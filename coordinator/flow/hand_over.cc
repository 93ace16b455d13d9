// Requests whose prompt one replica computes and another decodes.
#include <algorithm>
#include <utility>

#include "coordinator/flow/request_flow.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {

void RequestFlow::AskForRoom(const Replica& prefill, Replica& decode,
                             const std::shared_ptr<LiveGeneration>& generation, uint32_t attempt,
                             const Trouble& trouble) {
  Reservation reservation;
  reservation.generation = generation;
  reservation.prefill = prefill.link->replica();
  reservation.room.link = decode.link;
  reservation.room.submission_id = next_submission_id_++;
  reservation.room.attempt = attempt;
  const GenerationRequest& request = generation->request();
  reservation.room.sequences = request.choice_count;
  reservation.room.output_tokens = int64_t{request.max_tokens} * request.choice_count - 1;
  reservation.trouble = trouble;
  reservation.deadline_seconds = options_.now_seconds() + options_.recovery_timeout_seconds;
  v1::SessionRequest message;
  v1::Reserve& reserve = *message.mutable_reserve();
  reserve.set_submission_id(reservation.room.submission_id);
  reserve.set_attempt(attempt);
  reserve.mutable_prompt_token_ids()->Add(request.prompt_token_ids.begin(),
                                          request.prompt_token_ids.end());
  reserve.set_cache_salt(request.cache_salt);
  reserve.set_request_group(request.group);
  reserve.set_turn(request.turn);
  *reserve.mutable_senders() = prefill.link->ready().kv_shares();
  reserve.set_codec(pairs_.CodecOf(prefill.link->replica(), decode.link->replica()));
  // The prompt may wait for its turn at the prefill replica.
  reserve.set_lease_seconds(2 * options_.recovery_timeout_seconds);
  CountRoom(reservation.room, 1);
  decode.asked_seconds = options_.now_seconds();
  reservations_.emplace(reservation.room.submission_id, std::move(reservation));
  // A link that was lost this moment reports so, and the request goes on without room then.
  decode.link->Send(std::move(message));
}

void RequestFlow::OnReserved(const std::shared_ptr<ReplicaLink>& link,
                             const v1::Reserved& reserved) {
  Reservation reservation;
  {
    std::lock_guard lock(mutex_);
    const auto found = reservations_.find(reserved.submission_id());
    if (found == reservations_.end() || found->second.room.link != link ||
        found->second.room.attempt != reserved.attempt()) {
      return;  // cancelled, or too late
    }
    reservation = std::move(found->second);
    reservations_.erase(found);
    reservation.room.target = reserved.target();
    const auto prefill = replicas_.find(reservation.prefill);
    if (reserved.has_target() && prefill != replicas_.end() && prefill->second.load.ready) {
      const Room* from = nullptr;
      SendSubmission(prefill->second, reservation.generation, 0,
                     reservation.generation->request().choice_count, {}, reservation.room.attempt,
                     reservation.trouble, from, &reservation.room);
      return;
    }
    if (reserved.has_target()) {
      GiveRoomBack(reservation.room);
    } else {
      CountRoom(reservation.room, -1);
    }
  }
  const absl::Status reason =
      reserved.has_target()
          ? absl::UnavailableError("replica " + reservation.prefill + " is gone")
          : absl::Status(static_cast<absl::StatusCode>(reserved.error_code()), reserved.error());
  PlaceWithoutRoom(std::move(reservation), reason);
}

// The first choice goes on from the KV; the others find the prompt's blocks in its prefix index.
void RequestFlow::GoOnAtDecode(uint64_t submission_id, const v1::KvTransfer& transfer) {
  Submission& submission = submissions_.at(submission_id);
  if (!submission.room.has_value()) return;
  const Room room = *std::exchange(submission.room, std::nullopt);
  CountRoom(room, -1);  // what goes on there counts by itself
  const std::shared_ptr<LiveGeneration> generation = submission.generation;
  const auto prompt = static_cast<int64_t>(generation->request().prompt_token_ids.size());
  const double bytes_per_second =
      pairs_.NoteArrived(submission.link->replica(), room.link->replica(),
                         prompt - room.target.first_token(), transfer);
  if (bytes_per_second > 0) {
    Logger("coordinator")
        .info("KV from {} to {} goes over {}: {} bytes, {:.1f} MB/s measured",
              submission.link->replica(), room.link->replica(), transfer.transport(),
              transfer.bytes(), bytes_per_second / 1e6);
  }
  const Trouble trouble = submission.trouble;
  Forget(submission_id, submission);
  const auto decode = replicas_.find(room.link->replica());
  const std::vector<OpenChoice> open = generation->OpenChoices();
  if (open.empty()) return;
  if (decode != replicas_.end() && decode->second.link == room.link) {
    SendSubmission(decode->second, generation, open[0].choice, 1, open[0].output_token_ids,
                   room.attempt, trouble, &room);
    if (open.size() > 1) {
      SendSubmission(decode->second, generation, open[1].choice,
                     static_cast<int32_t>(open.size()) - 1, {}, room.attempt, trouble,
                     /*from=*/nullptr, /*to=*/nullptr, room.target.codec());
    }
    return;
  }
  Orphan orphan;  // lost meanwhile: wherever there is a replica
  orphan.generation = generation;
  orphan.last_link = room.link;
  orphan.choices = open;
  orphan.attempt = room.attempt + 1;
  orphan.trouble = trouble;
  orphan.reason = absl::UnavailableError("replica " + room.link->replica() + " was lost");
  AwaitReplica(std::move(orphan), false);
}

void RequestFlow::NoteFailedHandOver(const Submission& submission, const absl::Status& reason) {
  // Another error than that of the KV's way says nothing about the pair.
  if (!submission.room.has_value() || !absl::IsDataLoss(reason)) return;
  const std::string& prefill = submission.link->replica();
  const std::string& decode = submission.room->link->replica();
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
  std::vector<Reservation> ended;
  {
    std::lock_guard lock(mutex_);
    const double now = options_.now_seconds();
    std::erase_if(reservations_, [&](auto& entry) {
      const bool over =
          link == nullptr ? entry.second.deadline_seconds <= now : entry.second.room.link == link;
      if (!over) return false;
      if (link == nullptr) GiveRoomBack(entry.second.room);
      ended.push_back(std::move(entry.second));
      return true;
    });
  }
  for (Reservation& reservation : ended) {
    const std::string& decode = reservation.room.link->replica();
    const absl::Status reason =
        link == nullptr ? absl::UnavailableError("no room for its KV at " + decode + " in time")
                        : absl::UnavailableError("replica " + decode + " was lost");
    PlaceWithoutRoom(std::move(reservation), reason);
  }
}

void RequestFlow::PlaceWithoutRoom(Reservation reservation, const absl::Status& reason) {
  Logger("coordinator")
      .info("request {} is not handed over: {}", reservation.generation->request().request_id,
            std::string(reason.message()));
  Orphan orphan;
  orphan.generation = reservation.generation;
  orphan.last_link = reservation.room.link;
  orphan.choices = reservation.generation->OpenChoices();
  orphan.attempt = reservation.room.attempt + 1;
  orphan.trouble = reservation.trouble;
  orphan.reason = reason;
  Place(std::move(orphan));
}

}  // namespace tessera::coordinator
