// Where a link listens or connects: "unix:/run/worker.sock", "127.0.0.1:7001", "[::1]:7001",
// "host.name:7001". Pure functions and values, thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera::kernels {

struct LinkAddress {
  // A Unix socket; empty: TCP.
  std::string path = {};
  // Without the brackets of IPv6.
  std::string host = {};
  // 0 lets a listener choose.
  int port = 0;

  bool is_unix() const { return !path.empty(); }
  std::string ToString() const;
};

// InvalidArgument quotes the text: no port, a port above 65535, an empty host, a path that is
// relative or longer than a Unix socket's name may be.
absl::StatusOr<LinkAddress> ParseLinkAddress(std::string_view text);

}  // namespace tessera::kernels
