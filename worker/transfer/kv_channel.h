// The receiver's end of one connection that carries pieces of KV
// (worker/transfer/kv_part_writer.h), whatever transport the sender chooses: through the link
// itself, through memory that both processes share, or from one's device to the other's. The
// sender's end is the channel of its transport (worker/transfer/kv_ends.h).
//
// Thread rule: one thread. Ownership: borrows the link. Errors: as kernels::Link, and
// kernels::DevicePair.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/links/link.h"
#include "worker/transfer/device_pairs.h"
#include "worker/transfer/kv_ends.h"

namespace tessera::worker {

class KvReceiveChannel {
 public:
  // `pairs`, of the device whose pool takes the KV, with the sender's incarnation; null: it takes
  // none from other devices. Borrowed.
  explicit KvReceiveChannel(kernels::Link* link, DevicePairs* pairs = nullptr, uint64_t sender = 0);

  // The next piece, which lives until the next call. INVALID_ARGUMENT: a frame that does not belong
  // here. DEADLINE_EXCEEDED while the link's status is OK: nothing has come.
  absl::StatusOr<KvFramedPiece> Receive(double timeout_seconds);
  // Lets the elements of what was received last come, where they are on_device.
  absl::Status Fetch(double timeout_seconds) { return last_->Fetch(timeout_seconds); }
  // What was received last has been taken.
  absl::Status Release(double timeout_seconds) { return last_->Release(timeout_seconds); }

  bool on_device() const;

 private:
  kernels::Link* const link_;
  const std::vector<std::unique_ptr<KvReceiver>> receivers_;  // of each transport
  KvReceiver* last_;                                          // of the piece that was received last
  std::string payload_;
};

}  // namespace tessera::worker
