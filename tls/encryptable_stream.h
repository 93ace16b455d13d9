// A TCP connection, plain or inside TLS, decided when it begins. Asio's and Beast's operations read
// and write it like a socket.
//
// Thread rule: the socket's executor.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <memory>
#include <optional>
#include <utility>

namespace tessera {

using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

class EncryptableStream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;
  using Side = boost::asio::ssl::stream_base::handshake_type;

  // `socket`: of which a tcp_stream is made: one that is connected, or the executor of one that
  // will be. Null `context`: plain. A connection keeps the context that it begins with.
  template <typename Socket>
  EncryptableStream(Socket&& socket, TlsContext context)
      : tcp_(std::forward<Socket>(socket)), context_(std::move(context)) {
    if (context_ != nullptr) tls_.emplace(tcp_, *context_);
  }

  executor_type get_executor() { return tcp_.get_executor(); }
  bool encrypted() const { return tls_.has_value(); }
  // Below TLS; has the timeouts of every operation.
  boost::beast::tcp_stream& tcp() { return tcp_; }
  // Only where it is encrypted.
  SSL* session() { return tls_->native_handle(); }

  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (encrypted())
      tls_->async_read_some(buffers, std::forward<Handler>(handler));
    else
      tcp_.async_read_some(buffers, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (encrypted())
      tls_->async_write_some(buffers, std::forward<Handler>(handler));
    else
      tcp_.async_write_some(buffers, std::forward<Handler>(handler));
  }
  // Only where it is encrypted.
  template <typename Handler>
  void AsyncHandshake(Side side, Handler&& handler) {
    tls_->async_handshake(side, std::forward<Handler>(handler));
  }
  // Says that nothing follows, and waits until the other side has said so too.
  template <typename Handler>
  void AsyncGoodbye(Handler&& handler) {
    tls_->async_shutdown(std::forward<Handler>(handler));
  }

 private:
  boost::beast::tcp_stream tcp_;
  TlsContext context_;
  std::optional<boost::asio::ssl::stream<boost::beast::tcp_stream&>> tls_;
};

}  // namespace tessera
