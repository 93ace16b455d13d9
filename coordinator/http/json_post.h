// One POST of JSON to another server, by HTTP, plain or inside TLS. Blocks its thread.
// Thread rule: pure functions.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/http_peer.h"

namespace boost::asio::ssl {
class context;
}

namespace tessera::coordinator {

// How a peer wants to be spoken to.
struct PostTerms {
  std::shared_ptr<boost::asio::ssl::context> tls = nullptr;  // null: plain
  std::string server_name = "";    // in the peer's certificate; empty: its host
  std::string authorization = "";  // the header; empty: none
};

struct HttpAnswer {
  int status = 0;
  std::string body;
};

// Unavailable where no whole answer comes in time, the lookup of a name included.
absl::StatusOr<HttpAnswer> PostJson(const HttpPeer& peer, const std::string& path, std::string body,
                                    std::chrono::milliseconds patience,
                                    const PostTerms& terms = {});

}  // namespace tessera::coordinator
