// What a transport of KV gives each end of a connection that carries pieces of KV
// (worker/transfer/kv_part_writer.h): the sender a channel, the receiver a part of its channel
// (worker/transfer/kv_channel.h). One file a transport: socket_transport, shared_memory_transport,
// device_transport. Its name is in kv_transport, its frames are in kv_frame.h; KvReceiveChannel
// lists its receiver, KvOutbox chooses it.
//
// Thread rule: one thread each. Ownership: borrow the link. Errors: as kernels::Link, and what the
// transport adds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/links/link.h"
#include "proto/worker.pb.h"
#include "worker/transfer/kv_frame.h"
#include "worker/transfer/kv_part_writer.h"
#include "worker/transfer/kv_transport.h"

namespace tessera::worker {

// Elements of one piece at most, in a frame.
inline constexpr int64_t kMaxPieceBytes = int64_t{1} << 20;

// The sender's end.
class KvSendChannel {
 public:
  virtual ~KvSendChannel() = default;

  virtual KvTransport transport() const = 0;
  virtual int64_t max_piece_bytes() const = 0;
  // Whether elements are to lie in the memory of the pools' device.
  virtual bool on_device() const { return false; }
  // Where the elements of the next piece go. Waits until the transport has room for them.
  virtual absl::StatusOr<absl::Span<std::byte>> Prepare(int64_t bytes, double timeout_seconds) = 0;
  // With the elements that were written there. On devices it returns when they were read, whatever
  // becomes of them.
  virtual absl::Status Send(const v1::KvPiece& piece, double timeout_seconds) = 0;

  // The receiver's word that it has all: true where it staged it.
  absl::StatusOr<bool> AwaitComplete(double timeout_seconds);
  int64_t bytes_sent() const { return link_->counters().bytes_sent + elsewhere_bytes_; }

 protected:
  explicit KvSendChannel(kernels::Link* link) : link_(link) {}

  kernels::Link& link() { return *link_; }
  bool link_is_unix() const { return link_->is_unix(); }
  // The frame of a piece with its elements.
  absl::Status SendPiece(const v1::KvPiece& piece, absl::Span<const std::byte> elements,
                         double timeout_seconds);
  // The frame of a piece whose elements, so many bytes, do not go over the link.
  absl::Status SendElsewhere(KvFrame type, const v1::KvPiece& piece, size_t bytes,
                             double timeout_seconds);

 private:
  absl::Status SendFrame(KvFrame type, const v1::KvPiece& piece, absl::Span<const std::byte> rest,
                         double timeout_seconds);

  kernels::Link* const link_;
  int64_t elsewhere_bytes_ = 0;  // of elements that did not go over the link
};

// One transport's part of the receiver's end.
class KvReceiver {
 public:
  virtual ~KvReceiver() = default;

  // Whether frames of this type are the transport's.
  virtual bool Takes(KvFrame type) const = 0;
  // Acts on one of these: a piece, which borrows `payload`; nothing where the frame only sets the
  // transport up. InvalidArgument: a frame that does not belong here.
  virtual absl::StatusOr<std::optional<KvFramedPiece>> Take(KvFrame type,
                                                            const std::string& payload,
                                                            double timeout_seconds) = 0;
  // Whether the two ends agreed that elements come to the memory of the pools' device.
  virtual bool on_device() const { return false; }
  // Lets the elements of the piece taken last come, where they are on_device.
  virtual absl::Status Fetch(double /*timeout_seconds*/) { return absl::OkStatus(); }
  // The piece taken last is not needed any more.
  virtual absl::Status Release(double /*timeout_seconds*/) { return absl::OkStatus(); }
};

inline constexpr uint16_t FrameType(KvFrame frame) { return static_cast<uint16_t>(frame); }

// InvalidArgument: a frame of this type does not belong among KV, or not now.
absl::Status Misplaced(uint16_t type);

// A piece whose elements do not come over the link: with `memory` in place of what its frame says
// of them, so many bytes of it at most.
absl::StatusOr<KvFramedPiece> PieceElsewhere(const std::string& payload, const std::byte* memory,
                                             int64_t max_bytes);

}  // namespace tessera::worker
