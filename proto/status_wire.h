// absl::Status <-> grpc::Status: code and message unchanged. The code numbers of both are
// google.rpc.Code, so the table is the identity; what this file adds is that the message is cut to
// what HTTP/2 metadata carries. Thread rule: pure functions.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace tessera {

// gRPC sends a status message as a header; longer ones are cut here, with a mark, instead of
// failing there.
inline constexpr size_t kMaxStatusMessageBytes = 4096;

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace tessera
