#include "proto/reach.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "proto/protocol.h"

namespace tessera {

namespace asio = boost::asio;

std::string WithoutBrackets(const std::string& host) {
  return host.starts_with("[") && host.ends_with("]") ? host.substr(1, host.size() - 2) : host;
}

absl::Status Reach(const std::string& address, double timeout_seconds) {
  if (absl::Status s = CheckHostPort(address); !s.ok()) return s;
  const size_t colon = address.rfind(':');
  const std::string host = WithoutBrackets(address.substr(0, colon));
  asio::io_context context;
  boost::system::error_code error;
  asio::ip::tcp::resolver resolver(context);
  const auto found = resolver.resolve(host, address.substr(colon + 1), error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("no host ", host, " is known: ", error.message()));
  }
  asio::ip::tcp::socket socket(context);
  bool ended = false;
  asio::async_connect(socket, found, [&](const boost::system::error_code& e, const auto&) {
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
