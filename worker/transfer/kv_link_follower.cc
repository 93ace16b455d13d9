#include "worker/transfer/kv_link_follower.h"

#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

v1::KvNote NoteOf(const KvKey& key) {
  v1::KvNote note;
  note.set_submission_id(key.first);
  note.set_attempt(key.second);
  return note;
}

void Fill(const absl::Status& status, v1::KvOutcome* outcome) {
  outcome->set_error_code(static_cast<int32_t>(status.code()));
  outcome->set_error(std::string(StdView(status.message())));
}

}  // namespace

absl::Status KvLinkFollower::Take(const v1::KvNote& note) {
  const KvKey key{note.submission_id(), note.attempt()};
  switch (note.what_case()) {
    case v1::KvNote::kRoom: {
      auto ready = port_->OpenRoom(key, note.room());
      v1::KvNote answer = NoteOf(key);
      if (ready.ok()) {
        *answer.mutable_room_ready() = *std::move(ready);
      } else {
        Fill(ready.status(), answer.mutable_arrived());
      }
      answer_(answer);
      return absl::OkStatus();
    }
    case v1::KvNote::kForget: port_->CloseRoom(key); return absl::OkStatus();
    case v1::KvNote::kDrop: port_->Drop(key); return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          StrCat("the leader sent a note about KV of kind ", note.what_case()));
  }
}

void KvLinkFollower::OnPartArrived(const KvKey& key, const absl::Status& status) {
  v1::KvNote note = NoteOf(key);
  Fill(status, note.mutable_arrived());
  answer_(note);
}

void KvLinkFollower::OnPartSent(const KvKey& key, const absl::Status& status,
                                const v1::KvTransfer& transfer) {
  v1::KvNote note = NoteOf(key);
  Fill(status, note.mutable_sent());
  *note.mutable_sent()->mutable_transfer() = transfer;
  answer_(note);
}

}  // namespace tessera::worker
