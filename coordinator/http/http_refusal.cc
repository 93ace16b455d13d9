#include "coordinator/http/http_refusal.h"

#include <array>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::coordinator {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

std::atomic<int> refusals_under_way = 0;

std::string Refusal(int64_t limit) {
  const std::string body =
      absl::StrCat("{\"error\":{\"message\":\"", limit,
                   " connections are open (the limit): try again, or keep connections "
                   "alive\",\"type\":\"overloaded_error\",\"param\":null,\"code\":null}}");
  return absl::StrCat(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
      "Connection: close\r\nContent-Length: ",
      body.size(), "\r\n\r\n", body);
}

class Farewell : public std::enable_shared_from_this<Farewell> {
 public:
  Farewell(tcp::socket socket, int64_t limit)
      : socket_(std::move(socket)), deadline_(socket_.get_executor()), text_(Refusal(limit)) {
    ++refusals_under_way;
  }
  ~Farewell() { --refusals_under_way; }

  void Start() {
    deadline_.expires_after(std::chrono::seconds(1));
    deadline_.async_wait([self = shared_from_this()](boost::system::error_code) {
      boost::system::error_code ignored;
      self->socket_.close(ignored);
    });
    asio::async_write(socket_, asio::buffer(text_),
                      [self = shared_from_this()](boost::system::error_code error, size_t) {
                        if (error) {
                          self->deadline_.cancel();
                          return;
                        }
                        boost::system::error_code ignored;
                        self->socket_.shutdown(tcp::socket::shutdown_send, ignored);
                        self->ReadOn();
                      });
  }

 private:
  // Closing with a request unread would take the answer back from the client's buffer.
  void ReadOn() {
    socket_.async_read_some(asio::buffer(scratch_),
                            [self = shared_from_this()](boost::system::error_code error, size_t) {
                              if (error) {
                                self->deadline_.cancel();
                              } else {
                                self->ReadOn();
                              }
                            });
  }

  tcp::socket socket_;
  asio::steady_timer deadline_;
  const std::string text_;
  std::array<char, 4096> scratch_;
};

}  // namespace

std::string PacedWarning::Next(const std::string& text, double now_seconds) {
  if (now_seconds < quiet_until_seconds_) {
    ++left_out_;
    return "";
  }
  quiet_until_seconds_ = now_seconds + kQuietSeconds;
  const int64_t left_out = std::exchange(left_out_, 0);
  return left_out == 0 ? text
                       : absl::StrCat(text, " (and ", left_out, " times since the last line)");
}

void RefuseConnection(tcp::socket socket, int64_t limit) {
  if (refusals_under_way >= kMaxRefusals) return;
  std::make_shared<Farewell>(std::move(socket), limit)->Start();
}

}  // namespace tessera::coordinator
