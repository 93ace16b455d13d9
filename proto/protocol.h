// What two processes must agree on before they talk: build version and protocol version (contract
// "Fenced"), and the metadata entry that carries the cluster token. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera {

// Raised when a message between processes changes its meaning.
inline constexpr int32_t kProtocolVersion = 1;

// gRPC metadata entry with the shared secret of the cluster's processes.
inline constexpr std::string_view kClusterTokenKey = "tessera-cluster-token";

// FAILED_PRECONDITION naming both sides' versions when they differ. `build_version` is this
// process's own: proto/build_version.h.
absl::Status CheckVersions(std::string_view peer, std::string_view peer_build_version,
                           int32_t peer_protocol_version, std::string_view build_version);

// Reads a secret file: one line, surrounding white space dropped, 16 bytes at least. Errors name
// the file.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

// Equal, in a time that does not depend on where they differ.
bool SecretsEqual(std::string_view a, std::string_view b);

// Whether an Authorization header (or metadata entry) is "Bearer KEY" with one of `keys`. The
// scheme's case does not matter.
bool BearerFits(std::string_view authorization, std::span<const std::string> keys);

// Whether `host` (name or numeric address, no port) is the loopback interface.
bool IsLoopback(std::string_view host);

// InvalidArgument saying what is wrong with it when `address` is not host:port or [v6]:port with a
// port from 1 to 65535: a URL, say, or a host alone.
absl::Status CheckHostPort(std::string_view address);

}  // namespace tessera
