#include "coordinator/http/browser_guard.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace tessera::coordinator {
namespace {

struct Authority {
  std::string name;  // lower case, without brackets and trailing dot
  std::string port;  // empty: none given
};

Authority ReadAuthority(std::string_view text) {
  Authority read;
  std::string_view name = text;
  const size_t bracket = text.starts_with('[') ? text.find(']') : std::string_view::npos;
  if (bracket != std::string_view::npos) {
    name = text.substr(1, bracket - 1);
    text.remove_prefix(bracket + 1);
    if (text.starts_with(':')) read.port = text.substr(1);
  } else if (const size_t colon = text.rfind(':'); colon != std::string_view::npos) {
    name = text.substr(0, colon);
    read.port = text.substr(colon + 1);
  }
  if (name.ends_with('.')) name.remove_suffix(1);
  read.name = absl::AsciiStrToLower(std::string(name));
  return read;
}

// An address's 16 bytes, IPv4 mapped into IPv6; nullopt: a name. Short and hexadecimal forms of
// IPv4 count too: no name of the DNS looks like them.
std::optional<std::array<uint8_t, 16>> ReadAddress(std::string name) {
  std::array<uint8_t, 16> bytes{};
  in_addr ipv4{};
  if (inet_aton(name.c_str(), &ipv4) != 0) {
    bytes[10] = bytes[11] = 0xff;
    std::memcpy(bytes.data() + 12, &ipv4.s_addr, 4);
    return bytes;
  }
  name.resize(std::min(name.find('%'), name.size()));  // the zone of a link-local address
  if (inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1) return bytes;
  return std::nullopt;
}

// Loopback, and the unspecified address, which connects to this machine too.
bool IsThisMachine(const std::array<uint8_t, 16>& address) {
  constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::equal(kMapped.begin(), kMapped.end(), address.begin())) {
    return address[12] == 127 ||
           std::all_of(address.begin() + 12, address.end(), [](uint8_t b) { return b == 0; });
  }
  return std::all_of(address.begin(), address.end() - 1, [](uint8_t b) { return b == 0; }) &&
         address.back() <= 1;
}

bool IsLocalhost(const std::string& name) {
  return name == "localhost" || name.ends_with(".localhost");
}

// Schemes of pages that somebody else may have written, extensions of browsers included. Any other
// belongs to a program on this machine.
bool IsWebScheme(const std::string& scheme) {
  return scheme == "http" || scheme == "https" || scheme == "ws" || scheme == "wss" ||
         scheme == "ftp" || scheme.ends_with("-extension");
}

bool Holds(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// application/json and its kin, "application/x.y+json", whatever parameters follow.
bool IsJson(std::string_view content_type) {
  std::string type(content_type.substr(0, content_type.find(';')));
  type = absl::AsciiStrToLower(std::string(absl::StripAsciiWhitespace(type)));
  return type == "application/json" ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

std::string Excerpt(const std::string& text) {
  constexpr size_t kMaxBytes = 200;
  return text.size() <= kMaxBytes ? text : text.substr(0, kMaxBytes) + "...";
}

std::vector<std::string> Normalized(std::vector<std::string> names) {
  for (std::string& name : names) name = ReadAuthority(name).name;
  return names;
}

}  // namespace

BrowserGuard::BrowserGuard(BrowserGuardOptions options)
    : options_{.allowed_hosts = Normalized(std::move(options.allowed_hosts)),
               .allowed_origins = std::move(options.allowed_origins),
               .machine_name = ReadAuthority(options.machine_name).name} {}

bool BrowserGuard::IsAllowedHost(const std::string& name) const {
  return std::any_of(options_.allowed_hosts.begin(), options_.allowed_hosts.end(),
                     [&name](const std::string& allowed) {
                       if (allowed == "*") return true;
                       return allowed.starts_with("*.") ? name.ends_with(allowed.substr(1))
                                                        : name == allowed;
                     });
}

bool BrowserGuard::IsMachine(const std::string& name) const {
  const std::string& own = options_.machine_name;
  return !own.empty() && (name == own || name == own.substr(0, own.find('.')));
}

bool BrowserGuard::HostPasses(const std::string& authority) const {
  const std::string name = ReadAuthority(authority).name;
  return name.empty() || IsLocalhost(name) || name.ends_with(".local") ||
         name.ends_with(".internal") || IsMachine(name) || IsAllowedHost(name) ||
         ReadAddress(name).has_value();
}

bool BrowserGuard::OriginPasses(const std::string& origin, const std::string& host) const {
  if (origin.empty() || Holds(options_.allowed_origins, "*") ||
      Holds(options_.allowed_origins, origin)) {
    return true;
  }
  const size_t mark = origin.find("://");
  if (mark == std::string::npos) return false;  // "null": every sandboxed frame sends it
  const std::string scheme = absl::AsciiStrToLower(origin.substr(0, mark));
  if (!IsWebScheme(scheme)) return true;
  if (scheme != "http" && scheme != "https") return false;
  const Authority page = ReadAuthority(std::string_view(origin).substr(mark + 3));
  if (IsLocalhost(page.name) || IsAllowedHost(page.name)) return true;
  const auto address = ReadAddress(page.name);
  if (address.has_value() && IsThisMachine(*address)) return true;
  // The server's own page, behind something that forwards to it. Names that others on the network
  // may take (.local, .internal) are not enough.
  if (!address.has_value() && !IsMachine(page.name)) return false;
  const Authority own = ReadAuthority(host);
  const std::string usual = scheme == "http" ? "80" : "443";
  return page.name == own.name &&
         (page.port.empty() ? usual : page.port) == (own.port.empty() ? usual : own.port);
}

std::optional<BrowserGuard::Refusal> BrowserGuard::Check(const HttpRequest& header) const {
  if (header.on_loopback) {
    for (const std::string& authority : {header.target_authority, header.host}) {
      if (HostPasses(authority)) continue;
      const std::string name = Excerpt(ReadAuthority(authority).name);
      return Refusal{403, absl::StrCat("the request is for the host '", name,
                                       "', which is no name of this machine: a web page may have "
                                       "sent it. If the name is yours, start the coordinator with "
                                       "--allowed-hosts ",
                                       name)};
    }
    if (!OriginPasses(header.origin, header.host)) {
      return Refusal{
          403, absl::StrCat("the request comes from a page of the origin '", Excerpt(header.origin),
                            "', which may not call a server on loopback. If the page is "
                            "yours, start the coordinator with --allowed-origins ",
                            Excerpt(header.origin))};
    }
  }
  const bool from_page = !header.origin.empty() || !header.fetch_site.empty();
  if (!from_page || !header.has_body || IsJson(header.content_type)) return std::nullopt;
  return Refusal{
      415, absl::StrCat("the body of a web page's request must have the header "
                        "Content-Type: application/json",
                        header.content_type.empty() ? "" : ", not ", Excerpt(header.content_type))};
}

}  // namespace tessera::coordinator
