// What the coordinator shows workers on calls to them, where those are inside TLS (--cluster-tls).
// Thread rule: both are thread-safe.
#pragma once

#include <functional>
#include <memory>

#include "tls/certificates.h"
#include "tls/client_tls.h"

namespace tessera::coordinator {

// For channels that begin now; empty: plain.
using WorkerTls = std::function<ClientTls()>;

// The certificates of the cluster (--cluster-tls) at this time; empty: it has none.
using ClusterNow = std::function<std::shared_ptr<const Certificates>()>;

inline ClientTls TlsNow(const WorkerTls& tls) { return tls ? tls() : ClientTls(); }

}  // namespace tessera::coordinator
