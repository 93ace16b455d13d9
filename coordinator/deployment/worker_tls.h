// What the coordinator shows workers on calls to them, where those are inside TLS (--cluster-tls).
// Thread rule: WorkerTls is thread-safe.
#pragma once

#include <functional>

#include "tls/client_tls.h"

namespace tessera::coordinator {

// For channels that begin now; empty: plain.
using WorkerTls = std::function<ClientTls()>;

inline ClientTls TlsNow(const WorkerTls& tls) { return tls ? tls() : ClientTls(); }

}  // namespace tessera::coordinator
