// Frames of a KV connection. Thread rule: a plain type.
#pragma once

#include <cstdint>

#include "kernels/links/frame.h"

namespace tessera::worker {

// How long a prompt's states may come behind its room, at both ends.
inline constexpr double kStatesSeconds = 86400;

enum class KvFrame : uint16_t {
  // uint32 length of a v1::KvPiece, it, then the elements
  kPiece = kernels::kFirstOwnerFrame,
  // back: everything is there; with a byte of anything where it went through staging
  kComplete,
  kMemory,         // shared memory follows
  kPieceInMemory,  // as kPiece, but in place of the elements a uint32: their bytes, in the next
                   // slot
  kSlotFree,       // back: the oldest piece in memory was taken
  // How both ends' devices are joined (worker/transfer/device_offer.h).
  kDeviceOffer,    // what the sender's device is, and by which pair it is to send
  kDeviceAnswer,   // back: whether it may
  kDeviceJoined,   // back, then there: why it did not join; empty: it has
  kPieceOnDevice,  // as kPieceInMemory, but the elements come from device to device
  kSendOnDevice,   // back: the receiver expects these elements from now on
};

}  // namespace tessera::worker
