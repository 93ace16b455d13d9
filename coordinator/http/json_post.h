// One POST of JSON to another server, over plain HTTP. Blocks its thread.
// Thread rule: pure functions.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera::coordinator {

struct HttpPeer {
  std::string host, port;  // an IPv6 address without its brackets
  std::string authority;   // both as they were written
};

// "HOST", "HOST:PORT", "[V6]", "[V6]:PORT"; without a port `default_port`. InvalidArgument without
// a message where it is none of these.
absl::StatusOr<HttpPeer> ParseHttpPeer(std::string_view authority, std::string_view default_port);

struct HttpAnswer {
  int status = 0;
  std::string body;
};

// Unavailable where no whole answer comes in time.
absl::StatusOr<HttpAnswer> PostJson(const HttpPeer& peer, const std::string& path, std::string body,
                                    std::chrono::milliseconds patience);

}  // namespace tessera::coordinator
