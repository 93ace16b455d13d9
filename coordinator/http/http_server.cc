#include "coordinator/http/http_server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/http/http_connection.h"
#include "coordinator/http/http_refusal.h"
#include "proto/http_peer.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// One thread and its event loop; a connection stays with the one that it was given to.
struct IoLoop {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  std::thread thread;
};

class Server final : public HttpServer {
 public:
  Server(const HttpServerOptions& options, HttpHandler handler)
      : state_(std::make_shared<HttpServerState>()) {
    state_->options = options;
    state_->handler = std::move(handler);
    state_->bodies = std::make_shared<BodyBudget>(options.max_bodies_bytes);
    for (int i = 1; i < options.io_threads; ++i) loops_.emplace_back();
  }
  ~Server() override { Stop(); }

  absl::Status Listen() {
    if (state_->options.certificates != nullptr) {
      auto contexts = TlsContexts::Start(*state_->options.certificates);
      if (!contexts.ok()) return contexts.status();
      state_->tls = *std::move(contexts);
    }
    boost::system::error_code error;
    const std::string where = HostAndPort(state_->options.host, state_->options.port);
    tcp::resolver resolver(loops_.front().context);
    const auto found = resolver.resolve(state_->options.host, std::to_string(state_->options.port),
                                        tcp::resolver::passive, error);
    if (error)
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", where, ": ", error.message()));
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(4096, error);
    if (error) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ", where, ": ", error.message(),
                                                 "; choose another --host or --port"));
    }
    port_ = acceptor_.local_endpoint().port();
    state_->on_loopback = acceptor_.local_endpoint().address().is_loopback();
    return absl::OkStatus();
  }

  void Run() {
    AcceptNext();
    for (IoLoop& loop : loops_) {
      loop.thread = std::thread([&loop] { loop.context.run(); });
    }
  }

  uint16_t port() const override { return port_; }
  int64_t connections() const override { return state_->connections; }

  void Drain() override {
    state_->draining = true;
    asio::post(acceptor_.get_executor(), [this] {
      boost::system::error_code ignored;
      acceptor_.close(ignored);
    });
    ForEachConnection([](HttpConnectionControl& c) { c.Drain(); });
  }

  void Stop() override {
    if (stopped_) return;
    stopped_ = true;
    Drain();
    ForEachConnection([](HttpConnectionControl& c) { c.Abort(); });
    for (IoLoop& loop : loops_) loop.work.reset();
    // Aborted connections have no more work, so the loops run dry; what a handler still holds is
    // dropped.
    for (IoLoop& loop : loops_) {
      if (loop.thread.joinable()) loop.thread.join();
    }
  }

 private:
  struct Accepted {
    IoLoop* loop = nullptr;
    std::weak_ptr<HttpConnectionControl> connection;
  };

  void AcceptNext() {
    IoLoop& loop = loops_[next_loop_++ % loops_.size()];
    acceptor_.async_accept(loop.context, [this, &loop](boost::system::error_code error,
                                                       tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (error) {
        // Out of file descriptors, usually: the others go on, and in a moment there may be room
        // again.
        Warn(accept_failed_, absl::StrCat("a connection could not be accepted: ", error.message(),
                                          "; trying again ten times a second"));
        retry_.expires_after(std::chrono::milliseconds(100));
        retry_.async_wait([this](boost::system::error_code cancelled) {
          if (!cancelled) AcceptNext();
        });
        return;
      }
      if (state_->connections < state_->options.max_connections) {
        Remember({&loop, StartHttpConnection(std::move(socket), state_)});
      } else {
        const int64_t limit = state_->options.max_connections;
        Warn(refused_,
             absl::StrCat("a connection was refused with 503: ", limit, " are open (the limit)"));
        // A handshake costs more than the answer: who speaks TLS sees the connection close.
        if (state_->tls == nullptr) {
          asio::post(loop.context, [refused = std::move(socket), limit]() mutable {
            RefuseConnection(std::move(refused), limit);
          });
        }
      }
      AcceptNext();
    });
  }

  static void Warn(PacedWarning& kind, const std::string& text) {
    const double now =
        std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    const std::string line = kind.Next(text, now);
    if (!line.empty()) Logger("coordinator").warn("{}", line);
  }

  void Remember(Accepted accepted) {
    std::lock_guard lock(mutex_);
    // Swept now and then, so that the list stays of the order of what is open.
    if (accepted_.size() > 2 * static_cast<size_t>(state_->connections) + 64) {
      std::erase_if(accepted_, [](const Accepted& a) { return a.connection.expired(); });
    }
    accepted_.push_back(std::move(accepted));
  }

  void ForEachConnection(void (*action)(HttpConnectionControl&)) {
    std::lock_guard lock(mutex_);
    for (const Accepted& accepted : accepted_) {
      asio::post(accepted.loop->context, [weak = accepted.connection, action] {
        if (auto connection = weak.lock()) action(*connection);
      });
    }
  }

  const std::shared_ptr<HttpServerState> state_;
  std::deque<IoLoop> loops_;  // never moved
  size_t next_loop_ = 0;
  tcp::acceptor acceptor_{loops_.emplace_back().context};
  asio::steady_timer retry_{acceptor_.get_executor()};
  PacedWarning accept_failed_, refused_;  // of the acceptor's thread
  uint16_t port_ = 0;
  bool stopped_ = false;
  std::mutex mutex_;
  std::list<Accepted> accepted_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              HttpHandler handler) {
  auto server = std::make_unique<Server>(options, std::move(handler));
  if (absl::Status s = server->Listen(); !s.ok()) return s;
  server->Run();
  return server;
}

}  // namespace tessera::coordinator
