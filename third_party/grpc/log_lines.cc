#include "third_party/grpc/log_lines.h"

#include <grpc/support/log.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>

#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"

namespace tessera {
namespace {

constexpr std::string_view kFailed = "Handshaking failed: ";

// Behind `name` and up to the next quote; empty: it is not there.
std::string_view Quoted(std::string_view line, std::string_view name) {
  const size_t at = line.find(name);
  if (at == line.npos) return "";
  const std::string_view rest = line.substr(at + name.size());
  return rest.substr(0, rest.find('"'));
}

// "ipv4:10.0.0.2:51242" without its kind and port, which differ each time.
std::string HostOf(std::string_view address) {
  address = address.substr(address.find(':') + 1);
  address = address.substr(0, address.rfind(':'));
  if (!address.starts_with("%5B") || !address.ends_with("%5D")) return std::string(address);
  return StrCat("[", std::string(address.substr(3, address.size() - 6)), "]");
}

// Lets each line through once in ten minutes: probes of a port come every few seconds.
class Repeated {
 public:
  bool Passes(const std::string& line) {
    constexpr auto kAgain = std::chrono::minutes(10);
    constexpr size_t kMaxLines = 1000;
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    std::erase_if(said_, [&](const auto& entry) { return entry.second + kAgain <= now; });
    if (said_.size() >= kMaxLines) said_.clear();
    return said_.emplace(line, now).second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::chrono::steady_clock::time_point> said_;
};

void Take(gpr_log_func_args* line) {
  static Repeated& repeated = *new Repeated();  // threads of gRPC outlive main
  const std::string_view message(line->message), file(line->file);
  if (line->severity != GPR_LOG_SEVERITY_ERROR) {
    const std::string refused = RefusedHandshake(message);
    if (!refused.empty() && repeated.Passes(refused)) Logger("grpc").warn("{}", refused);
    return;
  }
  // A handshake that fails is said by RefusedHandshake, and by whoever called.
  if (file.ends_with("ssl_transport_security.cc")) return;
  if (repeated.Passes(std::string(message))) Logger("grpc").error("{}", message);
}

}  // namespace

std::string RefusedHandshake(std::string_view grpc_line) {
  if (!grpc_line.starts_with(kFailed)) return "";
  const std::string_view address = Quoted(grpc_line, "target_address:\"");
  const std::string who =
      address.empty() ? "a connection" : StrCat("a connection from ", HostOf(address));
  const auto says = [&](std::string_view text) { return grpc_line.find(text) != grpc_line.npos; };
  if (says("peer did not return a certificate")) {
    return who +
           " is refused: it shows no certificate; a worker gets --cluster-tls with its file of "
           "`tessera token create`, a client of --tls-client-ca --tls-cert and --tls-key";
  }
  if (says("wrong version number") || says("http request")) {
    return who +
           " is refused: it speaks no TLS; a worker gets --cluster-tls, or --tls-ca where this "
           "port "
           "has --tls-cert";
  }
  if (says("certificate verify failed") || says("unknown ca")) {
    return who +
           " is refused: one side's certificate comes from an authority that the other does not "
           "know, or is past its end; give --cluster-tls files of one `tessera token create` to "
           "all";
  }
  if (says("SSL_ERROR")) {
    const size_t at = grpc_line.find("SSL_ERROR");
    return StrCat(who, " is refused in its TLS handshake: ",
                  std::string(grpc_line.substr(at, grpc_line.find(" {", at) - at)));
  }
  if (address.empty() || !says("Socket closed")) return "";
  return who +
         " ended before its handshake did: a probe of the port, or a program that does not trust "
         "the certificate shown there (its --cluster-tls or --tls-ca is of another authority)";
}

void TakeGrpcLines() {
  if (std::getenv("GRPC_VERBOSITY") != nullptr) return;
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_DEBUG);  // where it tells of handshakes
  gpr_set_log_function(Take);
}

}  // namespace tessera
