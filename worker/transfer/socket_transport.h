// KV through the link itself: "tcp", or "unix" on one machine.
//
// Thread rule, errors: worker/transfer/kv_ends.h.
#pragma once

#include <memory>

#include "kernels/links/link.h"
#include "worker/transfer/kv_ends.h"

namespace tessera::worker {

// Behind the handshake.
std::unique_ptr<KvSendChannel> OpenSocketChannel(kernels::Link* link);
std::unique_ptr<KvReceiver> MakeSocketReceiver();

}  // namespace tessera::worker
