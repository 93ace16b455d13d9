// What a page in a browser may do to a server that only its own machine should reach.
//
// Any web page can send requests to a port on loopback, and a page whose name is pointed at
// 127.0.0.1 (DNS rebinding) counts as the server's own and reads the answers. A page cannot choose
// the headers Host and Origin, so they tell. Programs that are no browsers send no Origin, and a
// Host that was typed into a URL on this machine.
//
// Thread rule: immutable, thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/http/http_server.h"

namespace tessera::coordinator {

struct BrowserGuardOptions {
  // Names under which others reach the listener, through a proxy or a tunnel: "llm.example.com",
  // "*.example.com" for all names below it, "*" for any.
  std::vector<std::string> allowed_hosts;
  // As browsers send them, "https://app.example.com"; "null"; "*" for any.
  std::vector<std::string> allowed_origins;
  std::string machine_name;
};

class BrowserGuard {
 public:
  struct Refusal {
    int status = 403;
    std::string why;  // names the flag that lets the request through
  };

  explicit BrowserGuard(BrowserGuardOptions options);

  // On a loopback listener 403 for a foreign Host or Origin. On every listener 415 for a page's
  // body that is not JSON by its Content-Type: a page may send any other kind without asking first.
  std::optional<Refusal> Check(const HttpRequest& header) const;

 private:
  bool HostPasses(const std::string& authority) const;
  bool OriginPasses(const std::string& origin, const std::string& host) const;
  bool IsAllowedHost(const std::string& name) const;
  bool IsMachine(const std::string& name) const;

  const BrowserGuardOptions options_;
};

}  // namespace tessera::coordinator
