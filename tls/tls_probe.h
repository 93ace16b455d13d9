// What a gRPC port speaks, found out by a handshake: for a person whose call to it fails, because
// gRPC says no more than "Socket closed" where one side wants TLS and the other does not.
//
// Thread rule: any thread; blocks up to about three times `timeout_seconds`.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tls/client_tls.h"

namespace tessera {

struct TlsProbe {
  std::string address;  // host:port, [v6]:port
  ClientTls tls;        // of this side; empty: it speaks plainly
  // Whether `tls` comes from --cluster-tls; else from --tls-ca.
  bool of_cluster = false;
  double timeout_seconds = 2;
};

// OK: the port speaks gRPC as this side does, and both take the other's certificate.
// FAILED_PRECONDITION: which side wants what, whose certificate it is, and the flag that mends it.
// UNAVAILABLE: nothing answers, or what answers is no gRPC.
absl::Status ProbeTls(const TlsProbe& probe);

}  // namespace tessera
