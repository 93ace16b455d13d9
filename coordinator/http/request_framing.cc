#include "coordinator/http/request_framing.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
// The first byte of a TLS record that opens a handshake.
constexpr char kTlsHandshake = 0x16;

absl::Status Faulty(std::string why) { return absl::InvalidArgumentError(why); }

bool IsTokenChar(char c) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         kOthers.find(c) != std::string_view::npos;
}

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar);
}

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return absl::ascii_tolower(x) == absl::ascii_tolower(y);
  });
}

// Without spaces and tabs around it.
std::string_view Trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  text.remove_suffix(text.size() - (text.find_last_not_of(" \t") + 1));
  return text;
}

std::vector<std::string_view> Split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0;;) {
    const size_t end = text.find(separator, at);
    parts.push_back(text.substr(at, end - at));
    if (end == std::string_view::npos) return parts;
    at = end + separator.size();
  }
}

// What decides where the body ends, and for whom it is.
struct FramingFields {
  std::vector<std::string_view> content_lengths;
  std::vector<std::string_view> transfer_encodings;
  std::vector<std::string_view> hosts;
};

absl::Status CheckRequestLine(std::string_view line) {
  if (line.starts_with("PRI * HTTP/2")) {
    return Faulty(
        "this port speaks HTTP/1.1, not HTTP/2: send it HTTP/1.1 (gRPC has its own port)");
  }
  const std::vector<std::string_view> parts = Split(line, " ");
  if (parts.size() != 3 || parts[1].empty() || HasControls(parts[1]))
    return Faulty("the request line is not METHOD TARGET HTTP/1.1");
  if (!IsToken(parts[0])) return Faulty("its method is malformed");
  if (parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0")
    return Faulty("its version is not HTTP/1.0 or HTTP/1.1");
  return absl::OkStatus();
}

absl::Status ReadField(std::string_view line, FramingFields& fields) {
  if (line.starts_with(' ') || line.starts_with('\t'))
    return Faulty("a header is folded over two lines");
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return Faulty("a header is malformed: it has no colon");
  const std::string_view name = line.substr(0, colon);
  if (!IsToken(name)) return Faulty("a header is malformed: its name is not a word before a colon");
  const std::string_view value = Trimmed(line.substr(colon + 1));
  if (HasControls(line.substr(colon + 1)))
    return Faulty(absl::StrCat("the header ", std::string(name), " holds a control character"));
  if (EqualsIgnoreCase(name, "Content-Length")) fields.content_lengths.push_back(value);
  if (EqualsIgnoreCase(name, "Transfer-Encoding")) fields.transfer_encodings.push_back(value);
  if (EqualsIgnoreCase(name, "Host")) fields.hosts.push_back(value);
  return absl::OkStatus();
}

absl::Status CheckContentLength(const std::vector<std::string_view>& values) {
  if (values.size() > 1) return Faulty("Content-Length is given twice");
  if (values.empty()) return absl::OkStatus();
  const std::string_view value = values.front();
  int64_t bytes = 0;
  if (!value.empty() && value.find_first_not_of("0123456789") == std::string_view::npos &&
      absl::SimpleAtoi(std::string(value), &bytes)) {
    return absl::OkStatus();
  }
  return Faulty("Content-Length is malformed: it must be one decimal number");
}

// One coding is known here, chunked, alone.
absl::Status CheckTransferEncoding(const FramingFields& fields, bool http_1_0) {
  if (fields.transfer_encodings.empty()) return absl::OkStatus();
  if (!fields.content_lengths.empty())
    return Faulty("Content-Length and Transfer-Encoding are both given: send one of them");
  if (http_1_0) return Faulty("HTTP/1.0 has no Transfer-Encoding: send Content-Length");
  std::vector<std::string_view> codings;
  for (const std::string_view field : fields.transfer_encodings) {
    for (const std::string_view coding : Split(field, ",")) codings.push_back(Trimmed(coding));
  }
  const auto chunked = [](std::string_view coding) { return EqualsIgnoreCase(coding, "chunked"); };
  for (const std::string_view coding : codings) {
    if (!IsToken(coding)) return Faulty("Transfer-Encoding is malformed");
  }
  const auto times = std::count_if(codings.begin(), codings.end(), chunked);
  if (times > 1) return Faulty("Transfer-Encoding names chunked twice");
  if (times == 1 && !chunked(codings.back()))
    return Faulty("chunked is not the last coding of Transfer-Encoding");
  if (codings.size() == 1 && times == 1) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("the transfer coding ", std::string(codings.front()),
                                               " is not known here: send chunked alone"));
}

bool IsPort(std::string_view text) {
  return text.size() <= 5 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// A name, an address or an address in brackets, and perhaps a port. Narrower than a URI's reg-name:
// no machine's name has a comma or a quote.
bool IsAuthority(std::string_view text) {
  std::string_view host = text, port;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return false;
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (!port.empty() && port.front() != ':') return false;
    if (!port.empty()) port.remove_prefix(1);
    return !host.empty() && IsPort(port) &&
           std::all_of(host.begin(), host.end(), [](unsigned char c) {
             return absl::ascii_isalnum(c) || c == ':' || c == '.' || c == '%';
           });
  }
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  return !host.empty() && IsPort(port) &&
         std::all_of(host.begin(), host.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_' || c == '~' ||
                  c == '%';
         });
}

absl::Status CheckHost(const std::vector<std::string_view>& hosts, bool http_1_0,
                       std::string_view target) {
  if (hosts.size() > 1 || (hosts.empty() && !http_1_0))
    return Faulty("a request of HTTP/1.1 has exactly one Host header");
  if (!hosts.empty() && !hosts.front().empty() && !IsAuthority(hosts.front()))
    return Faulty("the header Host is malformed: it must be HOST or HOST:PORT");
  if (const auto authority = TargetAuthority(target); authority.data() != nullptr) {
    if (!IsAuthority(authority)) return Faulty("the host of its target is malformed");
  }
  return absl::OkStatus();
}

}  // namespace

bool HasControls(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return c != '\t' && absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
}

absl::StatusOr<size_t> FindHeaderEnd(std::string_view bytes, size_t& scanned) {
  if (!bytes.empty() && bytes.front() == kTlsHandshake)
    return Faulty("this port speaks http, not https: use http:// in the URL");
  for (size_t end = 0;; scanned = end + kLineEnd.size()) {
    end = bytes.find_first_of(kLineEnd, scanned);
    if (end == std::string_view::npos) break;
    if (bytes[end] == '\n') return Faulty("a line ends with LF alone: lines end with CR LF");
    if (end + 1 == bytes.size()) {
      scanned = end;
      return 0;
    }
    if (bytes[end + 1] != '\n') return Faulty("a line holds a lone CR: lines end with CR LF");
    const size_t begin = end == 0 ? 0 : bytes.rfind('\n', end - 1) + 1;
    if (begin == 0) {
      if (absl::Status s = CheckRequestLine(bytes.substr(0, end)); !s.ok()) return s;
    }
    if (begin == end) return end + kLineEnd.size();
  }
  scanned = bytes.size();
  return 0;
}

absl::Status CheckFraming(std::string_view header) {
  const std::vector<std::string_view> lines = Split(header, kLineEnd);
  if (absl::Status s = CheckRequestLine(lines.front()); !s.ok()) return s;
  const std::vector<std::string_view> request_line = Split(lines.front(), " ");
  FramingFields fields;
  for (size_t i = 1; i < lines.size() && !lines[i].empty(); ++i) {
    if (absl::Status s = ReadField(lines[i], fields); !s.ok()) return s;
  }
  const bool http_1_0 = request_line[2] == "HTTP/1.0";
  if (absl::Status s = CheckContentLength(fields.content_lengths); !s.ok()) return s;
  if (absl::Status s = CheckTransferEncoding(fields, http_1_0); !s.ok()) return s;
  return CheckHost(fields.hosts, http_1_0, request_line[1]);
}

std::string_view RequestTarget(std::string_view header) {
  const std::vector<std::string_view> parts =
      Split(header.substr(0, header.find_first_of(kLineEnd)), " ");
  return parts.size() == 3 && parts[2].starts_with("HTTP/") ? parts[1] : std::string_view();
}

std::string_view TargetAuthority(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!EqualsIgnoreCase(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    return target.substr(0, target.find_first_of("/?#"));
  }
  return {};
}

std::string PathOf(std::string_view target) {
  if (const std::string_view authority = TargetAuthority(target); authority.data() != nullptr)
    target.remove_prefix(static_cast<size_t>(authority.end() - target.begin()));
  const std::string_view path = target.substr(0, target.find('?'));
  return path.empty() ? "/" : std::string(path);
}

}  // namespace tessera::coordinator
