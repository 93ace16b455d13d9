// The two ends of one connection that carries pieces of KV (worker/transfer/kv_part_writer.h):
// through the link itself, or through memory that both processes share, where the link only says
// what lies there.
//
// In shared memory there are kKvSlots slots, which pieces use in turn: the sender writes one only
// after the receiver has said that the piece before in it was taken. So a piece is copied twice,
// into the slot and out of it, instead of four times. What a receiver reads there may change under
// its hands where the sender misbehaves; nothing but elements lies there, and any elements will do.
//
// Thread rule: one thread each. Ownership: borrow the link. Errors: as kernels::Link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/links/link.h"
#include "kernels/links/shared_memory.h"
#include "proto/worker.pb.h"
#include "worker/transfer/kv_part_writer.h"
#include "worker/transfer/kv_transport.h"

namespace tessera::worker {

// Frames of a KV connection.
enum class KvFrame : uint16_t {
  // uint32 length of a v1::KvPiece, it, then the elements
  kPiece = kernels::kFirstOwnerFrame,
  // back: everything is there; with a byte of anything where it went through staging
  kComplete,
  kMemory,         // shared memory follows
  kPieceInMemory,  // as kPiece, but in place of the elements a uint32: their bytes, in the next
                   // slot
  kSlotFree,       // back: the oldest piece in memory was taken
};

// Elements of one piece at most: of a frame, and in a slot, where smaller pieces stay in caches.
inline constexpr int64_t kMaxPieceBytes = int64_t{1} << 20;
inline constexpr int64_t kKvSlotBytes = int64_t{1} << 18;
inline constexpr int64_t kKvSlots = 4;

class KvSendChannel {
 public:
  // Behind the handshake. `shares_memory`: over a Unix socket only.
  static absl::StatusOr<std::unique_ptr<KvSendChannel>> Open(kernels::Link* link,
                                                             bool shares_memory,
                                                             double timeout_seconds);

  int64_t max_piece_bytes() const { return memory_ ? kKvSlotBytes : kMaxPieceBytes; }
  // Where the elements of the next piece go. Waits for a slot.
  absl::StatusOr<absl::Span<std::byte>> Prepare(int64_t bytes, double timeout_seconds);
  // With the elements that were written there.
  absl::Status Send(const v1::KvPiece& piece, double timeout_seconds);
  // The receiver's word that it has all: true where it staged it.
  absl::StatusOr<bool> AwaitComplete(double timeout_seconds);

  KvTransport transport() const;
  int64_t bytes_sent() const { return link_->counters().bytes_sent + memory_bytes_; }

 private:
  explicit KvSendChannel(kernels::Link* link) : link_(link) {}

  kernels::Link* const link_;
  std::shared_ptr<std::byte> memory_;  // null: elements go through the link
  std::vector<std::byte> elements_;    // where they do
  absl::Span<std::byte> prepared_;
  int64_t pieces_ = 0;        // in memory, all
  int64_t taken_ = 0;         // of these
  int64_t memory_bytes_ = 0;  // that went through memory
};

class KvReceiveChannel {
 public:
  explicit KvReceiveChannel(kernels::Link* link) : link_(link) {}

  // The next piece, which lives until the next call. INVALID_ARGUMENT: a frame that does not belong
  // here. DEADLINE_EXCEEDED while the link's status is OK: nothing has come.
  absl::StatusOr<KvFramedPiece> Receive(double timeout_seconds);
  // What was received last has been taken.
  absl::Status Release(double timeout_seconds);

 private:
  absl::StatusOr<KvFramedPiece> FromMemory();

  kernels::Link* const link_;
  std::shared_ptr<std::byte> memory_;  // null: the sender shares none
  std::string payload_;
  int64_t pieces_ = 0;  // in memory
  bool in_memory_ = false;
};

}  // namespace tessera::worker
