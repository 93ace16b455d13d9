#include "proto/protocol.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera {

absl::Status CheckVersions(std::string_view peer, std::string_view peer_build_version,
                           int32_t peer_protocol_version, std::string_view build_version) {
  if (peer_build_version == build_version && peer_protocol_version == kProtocolVersion) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      std::string(peer), " runs build ", std::string(peer_build_version), " (protocol ",
      peer_protocol_version, "), this process runs build ", std::string(build_version),
      " (protocol ", kProtocolVersion, "): install the same build on every machine"));
}

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("token file ", path, " cannot be read: ", std::strerror(errno)));
  }
  std::stringstream text;
  text << file.rdbuf();
  std::string token(absl::StripAsciiWhitespace(text.str()));
  if (token.size() < 16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "token file ", path, " holds ", token.size(),
        " bytes; 16 at least are needed (for example: openssl rand -hex 32 > ", path, ")"));
  }
  if (token.find_first_of(" \t\r\n") != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "token file ", path, " holds white space inside the token; one word is expected"));
  }
  return token;
}

bool SecretsEqual(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? 0 : b[i % b.size()];
    difference |= static_cast<unsigned char>(a[i] ^ other);
  }
  return difference == 0;
}

bool BearerFits(std::string_view authorization, std::span<const std::string> keys) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view scheme = authorization.substr(0, kScheme.size());
  if (!absl::EqualsIgnoreCase({scheme.data(), scheme.size()}, {kScheme.data(), kScheme.size()}))
    return false;
  std::string_view given = authorization.substr(kScheme.size());
  given.remove_prefix(std::min(given.find_first_not_of(' '), given.size()));
  bool fits = false;
  for (const std::string& key : keys) fits |= SecretsEqual(given, key);
  return fits;
}

bool IsLoopback(std::string_view host) {
  if (host == "localhost") return true;
  if (host.starts_with("[") && host.ends_with("]")) host = host.substr(1, host.size() - 2);
  if (host == "::1") return true;
  return host.starts_with("127.") &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

absl::Status CheckHostPort(std::string_view address) {
  auto wrong = [address](std::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", std::string(address), "\" is not HOST:PORT: ", std::string(why)));
  };
  if (address.find("://") != std::string_view::npos)
    return wrong("leave out the scheme and \"://\", and any path");
  if (address.find_first_of("/ \t") != std::string_view::npos)
    return wrong("it holds a slash or white space");
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || address.ends_with("]")) return wrong("it has no port");
  const std::string_view host = address.substr(0, colon), digits = address.substr(colon + 1);
  if (host.empty()) return wrong("it has no host");
  const bool brackets = host.starts_with("[") && host.ends_with("]");
  if (!brackets && host.find(':') != std::string_view::npos)
    return wrong("an IPv6 address needs brackets: [::1]:8001");
  int port = 0;
  const bool number = !digits.empty() && digits.size() <= 5 &&
                      digits.find_first_not_of("0123456789") == std::string_view::npos;
  for (const char c : digits.substr(0, number ? digits.size() : 0)) port = 10 * port + (c - '0');
  if (port < 1 || port > 65535) return wrong("the port is a number from 1 to 65535");
  return absl::OkStatus();
}

}  // namespace tessera
