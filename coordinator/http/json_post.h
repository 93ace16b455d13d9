// One POST of JSON to another server, over plain HTTP. Blocks its thread.
// Thread rule: pure functions.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "proto/http_peer.h"

namespace tessera::coordinator {

struct HttpAnswer {
  int status = 0;
  std::string body;
};

// Unavailable where no whole answer comes in time.
absl::StatusOr<HttpAnswer> PostJson(const HttpPeer& peer, const std::string& path, std::string body,
                                    std::chrono::milliseconds patience);

}  // namespace tessera::coordinator
