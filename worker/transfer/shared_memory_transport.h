// KV through memory that both processes share ("shm"), on one machine: the link only says what lies
// there.
//
// There are kKvSlots slots, which pieces use in turn: the sender writes one only after the receiver
// has said that the piece before in it was taken. So a piece is copied twice, into the slot and out
// of it, instead of four times. What a receiver reads there may change under its hands where the
// sender misbehaves; nothing but elements lies there, and any elements will do.
//
// Thread rule, errors: worker/transfer/kv_ends.h.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/links/link.h"
#include "worker/transfer/kv_ends.h"

namespace tessera::worker {

// Smaller than a frame's piece may be, so that pieces stay in caches.
inline constexpr int64_t kKvSlotBytes = int64_t{1} << 18;
inline constexpr int64_t kKvSlots = 4;

// Behind the handshake, over a Unix socket only. ResourceExhausted where the memory cannot be had.
absl::StatusOr<std::unique_ptr<KvSendChannel>> OpenSharedMemoryChannel(kernels::Link* link,
                                                                       double timeout_seconds);
std::unique_ptr<KvReceiver> MakeSharedMemoryReceiver(kernels::Link* link);

}  // namespace tessera::worker
