#include "kernels/links/link_address.h"

#include <sys/un.h>

#include <charconv>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
constexpr size_t kMaxPathBytes = sizeof(sockaddr_un::sun_path) - 1;

absl::StatusOr<LinkAddress> ParsePath(std::string_view path) {
  if (path.empty() || path.front() != '/' || path.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        StrCat("link address \"unix:", path, "\": the path must be absolute"));
  }
  if (path.size() > kMaxPathBytes) {
    return absl::InvalidArgumentError(StrCat("link address \"unix:", path, "\": the path has ",
                                             path.size(), " bytes; at most ", kMaxPathBytes));
  }
  return LinkAddress{.path = std::string(path)};
}

}  // namespace

std::string LinkAddress::ToString() const {
  if (is_unix()) return StrCat(kUnixPrefix, path);
  const bool is_v6 = host.find(':') != std::string::npos;
  return is_v6 ? StrCat("[", host, "]:", port) : StrCat(host, ":", port);
}

absl::StatusOr<LinkAddress> ParseLinkAddress(std::string_view text) {
  if (text.starts_with(kUnixPrefix)) return ParsePath(text.substr(kUnixPrefix.size()));
  const auto bad = [&](std::string_view reason) {
    return absl::InvalidArgumentError(StrCat("link address \"", text, "\": ", reason));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad("needs host:port or unix:/path");
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad("an IPv6 host needs brackets");
  }
  if (host.empty()) return bad("the host is missing");
  if (host.find_first_of(std::string_view("[]\0", 3)) != std::string_view::npos) {
    return bad("this is no host");
  }
  int port = 0;
  const auto [end, error] =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc() || end != port_text.data() + port_text.size() || port < 0 ||
      port > 65535) {
    return bad("the port must be 0 to 65535");
  }
  return LinkAddress{.host = std::string(host), .port = port};
}

}  // namespace tessera::kernels
