// KV from one worker's device to the other's ("nccl"), through a pair of devices
// (worker/transfer/device_pairs.h): the link only says what comes.
//
// A piece goes when the receiver has said that it expects it, and the pair is this connection's
// until the piece was written: so the two ends never wait in different orders, and a piece that is
// refused leaves the pair as it was.
//
// Thread rule: worker/transfer/kv_ends.h. Errors: also those of kernels::DevicePair.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/links/link.h"
#include "worker/transfer/device_pairs.h"
#include "worker/transfer/kv_ends.h"

namespace tessera::worker {

// Where both ends agreed on `device` (worker/transfer/device_offer.h).
std::unique_ptr<KvSendChannel> OpenDeviceChannel(kernels::Link* link,
                                                 std::shared_ptr<PairedDevice> device);
// `pairs`, of the device whose pool takes the KV, with the sender's incarnation; null: it takes
// none from other devices. Borrowed.
std::unique_ptr<KvReceiver> MakeDeviceReceiver(kernels::Link* link, DevicePairs* pairs,
                                               uint64_t sender);

}  // namespace tessera::worker
