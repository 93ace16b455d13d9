#include "proto/tcp_probe.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/http_peer.h"
#include "proto/protocol.h"
#include "third_party/linux/host_lookup.h"

namespace tessera {

namespace asio = boost::asio;

absl::Status Reach(const std::string& address, double timeout_seconds) {
  if (absl::Status s = CheckHostPort(address); !s.ok()) return s;
  const absl::StatusOr<HttpPeer> peer = ParseHttpPeer(address, "");
  if (!peer.ok()) return absl::InvalidArgumentError(absl::StrCat(address, " is not HOST:PORT"));
  const absl::StatusOr<HostAddresses> found = LookUpHost(peer->host, timeout_seconds);
  if (!found.ok()) return found.status();
  const auto port = static_cast<uint16_t>(std::atoi(peer->port.c_str()));
  asio::io_context context;
  boost::system::error_code error;
  std::vector<asio::ip::tcp::endpoint> ends;
  for (const std::string& numeric : *found)
    ends.emplace_back(asio::ip::make_address(numeric, error), port);
  asio::ip::tcp::socket socket(context);
  bool ended = false;
  asio::async_connect(socket, ends, [&](const boost::system::error_code& e, const auto&) {
    ended = true;
    error = e;
  });
  context.run_for(std::chrono::milliseconds(static_cast<int64_t>(1e3 * timeout_seconds)));
  if (!ended) {
    socket.close(error);
    context.run();  // the handler is called with what it refers to still there
    return absl::UnavailableError(absl::StrCat("no answer within ", timeout_seconds, " s"));
  }
  if (error == asio::error::connection_refused) return absl::NotFoundError(error.message());
  return error ? absl::UnavailableError(error.message()) : absl::OkStatus();
}

}  // namespace tessera
