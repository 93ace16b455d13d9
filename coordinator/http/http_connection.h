// One client connection of http_server: reads requests one after the other, hands each out as an
// exchange, writes what the exchange answers. Only http_server.cc and http_connection.cc include
// this (Asio and Beast).
//
// Thread rule: all socket work on the connection's own executor (one I/O thread); the exchange side
// locks.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "coordinator/http/http_server.h"
#include "coordinator/http/tls_contexts.h"

namespace tessera::coordinator {

// What the server and its connections share.
struct HttpServerState {
  HttpServerOptions options;
  HttpHandler handler;
  std::unique_ptr<TlsContexts> tls;  // null: plain
  std::shared_ptr<BodyBudget> bodies;
  std::atomic<int64_t> connections = 0;
  std::atomic<bool> draining = false;
  bool on_loopback = false;  // the address that is listened on; set before the first connection
};

// Lets the server close what it has accepted; holds no connection alive.
class HttpConnectionControl {
 public:
  virtual ~HttpConnectionControl() = default;
  // Close at once when idle, else after the answer. On the connection's executor.
  virtual void Drain() = 0;
  virtual void Abort() = 0;
};

// Takes the socket over; the connection lives as long as it has work.
std::shared_ptr<HttpConnectionControl> StartHttpConnection(boost::asio::ip::tcp::socket socket,
                                                           std::shared_ptr<HttpServerState> state);

}  // namespace tessera::coordinator
