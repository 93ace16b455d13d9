#include "proto/http_peer.h"

#include "absl/strings/str_cat.h"

namespace tessera {

absl::StatusOr<HttpPeer> ParseHttpPeer(std::string_view authority, std::string_view default_port) {
  const absl::Status bad = absl::InvalidArgumentError("");
  HttpPeer peer;
  peer.authority = std::string(authority);
  std::string_view host = authority, port = default_port;
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string_view::npos) return bad;
    if (end + 1 < host.size() && host[end + 1] != ':') return bad;
    if (end + 1 < host.size()) port = host.substr(end + 2);
    host = host.substr(1, end - 1);
  } else if (const size_t colon = host.find(':'); colon != std::string_view::npos) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  const bool is_number = !port.empty() && port.size() <= 5 &&
                         port.find_first_not_of("0123456789") == std::string_view::npos;
  if (host.empty() || !is_number || authority.find_first_of(" \t\r\n@/") != std::string::npos)
    return bad;
  peer.host = std::string(host);
  peer.port = std::string(port);
  return peer;
}

std::string WithoutBrackets(const std::string& host) {
  return host.starts_with("[") && host.ends_with("]") ? host.substr(1, host.size() - 2) : host;
}

std::string HostAndPort(const std::string& host, int port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

}  // namespace tessera
