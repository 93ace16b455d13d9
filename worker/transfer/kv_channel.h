// The two ends of one connection that carries pieces of KV (worker/transfer/kv_part_writer.h):
// through the link itself, or through memory that both processes share, or from one's device to the
// other's, where the link only says what comes.
//
// In shared memory there are kKvSlots slots, which pieces use in turn: the sender writes one only
// after the receiver has said that the piece before in it was taken. So a piece is copied twice,
// into the slot and out of it, instead of four times. What a receiver reads there may change under
// its hands where the sender misbehaves; nothing but elements lies there, and any elements will do.
//
// From device to device (worker/transfer/device_pairs.h) a piece goes when the receiver has said
// that it expects it, and the pair is this connection's until the piece was written: so the two
// ends never wait in different orders, and a piece that is refused leaves the pair as it was.
//
// Thread rule: one thread each. Ownership: borrow the link. Errors: as kernels::Link, and
// kernels::DevicePair.
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
#include "worker/transfer/device_pairs.h"
#include "worker/transfer/kv_frame.h"
#include "worker/transfer/kv_part_writer.h"
#include "worker/transfer/kv_transport.h"

namespace tessera::worker {

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
  // Likewise, where both ends agreed on these (worker/transfer/device_offer.h).
  static std::unique_ptr<KvSendChannel> Open(kernels::Link* link,
                                             std::shared_ptr<PairedDevice> device);
  ~KvSendChannel() { EndTurn(); }

  int64_t max_piece_bytes() const;
  // Whether elements are to lie in the memory of the pools' device.
  bool on_device() const { return device_ != nullptr; }
  // Where the elements of the next piece go. Waits for a slot, or for the pair of devices, which
  // nobody else has until the piece was sent.
  absl::StatusOr<absl::Span<std::byte>> Prepare(int64_t bytes, double timeout_seconds);
  // With the elements that were written there. On devices it returns when they were read, whatever
  // becomes of them.
  absl::Status Send(const v1::KvPiece& piece, double timeout_seconds);
  // The receiver's word that it has all: true where it staged it.
  absl::StatusOr<bool> AwaitComplete(double timeout_seconds);

  KvTransport transport() const;
  int64_t bytes_sent() const { return link_->counters().bytes_sent + memory_bytes_; }

 private:
  explicit KvSendChannel(kernels::Link* link) : link_(link) {}
  absl::Status SendOnDevice(double timeout_seconds);
  void EndTurn();

  kernels::Link* const link_;
  std::shared_ptr<std::byte> memory_;  // null: elements go through the link
  std::vector<std::byte> elements_;    // where they do
  absl::Span<std::byte> prepared_;
  int64_t pieces_ = 0;                    // in memory, all
  int64_t taken_ = 0;                     // of these
  int64_t memory_bytes_ = 0;              // that went through memory, or devices
  std::shared_ptr<PairedDevice> device_;  // null: elements go through the hosts
  bool has_turn_ = false;                 // of the pair
};

class KvReceiveChannel {
 public:
  // `pairs`, of the device whose pool takes the KV, with the sender's incarnation; null: it takes
  // none from other devices. Borrowed.
  explicit KvReceiveChannel(kernels::Link* link, DevicePairs* pairs = nullptr, uint64_t sender = 0)
      : link_(link), pairs_(pairs), sender_(sender) {}
  ~KvReceiveChannel() { EndTurn(); }

  // The next piece, which lives until the next call. INVALID_ARGUMENT: a frame that does not belong
  // here. DEADLINE_EXCEEDED while the link's status is OK: nothing has come.
  absl::StatusOr<KvFramedPiece> Receive(double timeout_seconds);
  // Lets the elements of what was received last come, where they are on_device.
  absl::Status Fetch(double timeout_seconds);
  // What was received last has been taken.
  absl::Status Release(double timeout_seconds);

  bool on_device() const { return device_ != nullptr; }

 private:
  // What stands for elements that do not come over the link: how many bytes they have.
  static absl::StatusOr<int64_t> BytesElsewhere(const KvFramedPiece& piece, int64_t max_bytes);
  absl::StatusOr<KvFramedPiece> FromMemory();
  absl::StatusOr<KvFramedPiece> FromDevice();
  void EndTurn();

  kernels::Link* const link_;
  DevicePairs* const pairs_;
  const uint64_t sender_;
  std::shared_ptr<std::byte> memory_;     // null: the sender shares none
  std::shared_ptr<PairedDevice> device_;  // null: no device sends
  std::string payload_;
  int64_t pieces_ = 0;        // in memory
  bool in_memory_ = false;    // the last piece
  int64_t device_bytes_ = 0;  // of the last piece, on the device
  bool has_turn_ = false;     // of the pair
};

}  // namespace tessera::worker
