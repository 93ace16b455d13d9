// Addresses "HOST:PORT" of servers, as people write them. Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera {

struct HttpPeer {
  std::string host, port;  // an IPv6 address without its brackets
  std::string authority;   // both as they were written
};

// "HOST", "HOST:PORT", "[V6]", "[V6]:PORT"; without a port `default_port`. InvalidArgument without
// a message where it is none of these.
absl::StatusOr<HttpPeer> ParseHttpPeer(std::string_view authority, std::string_view default_port);

// "[::1]" without its brackets; other hosts as they are.
std::string WithoutBrackets(const std::string& host);

// "[::1]:8001": an IPv6 address has brackets before a port.
std::string HostAndPort(const std::string& host, int port);

}  // namespace tessera
