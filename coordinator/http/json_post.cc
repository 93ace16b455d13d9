#include "coordinator/http/json_post.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

class Post {
 public:
  Post(const HttpPeer& peer, const std::string& path, std::string body) : peer_(peer) {
    request_.method(http::verb::post);
    request_.target(path);
    request_.version(11);
    request_.set(http::field::host, peer.authority);
    request_.set(http::field::content_type, "application/json");
    request_.set(http::field::connection, "close");
    request_.body() = std::move(body);
    request_.prepare_payload();
  }

  absl::StatusOr<HttpAnswer> Run(std::chrono::milliseconds patience) {
    resolver_.async_resolve(peer_.host, peer_.port, [this](auto error, auto addresses) {
      if (Failed(error)) return;
      asio::async_connect(socket_, addresses, [this](auto failed, const auto&) {
        if (!Failed(failed)) Write();
      });
    });
    io_.run_for(patience);
    if (done_) {
      return HttpAnswer{static_cast<int>(response_.result_int()), std::move(response_.body())};
    }
    if (!error_) return absl::UnavailableError(StrCat("no answer in ", patience.count(), " ms"));
    return absl::UnavailableError(error_.message());
  }

 private:
  bool Failed(const boost::system::error_code& error) {
    if (error) error_ = error;
    return static_cast<bool>(error);
  }

  void Write() {
    http::async_write(socket_, request_, [this](auto error, size_t) {
      if (Failed(error)) return;
      http::async_read(socket_, buffer_, response_,
                       [this](auto failed, size_t) { done_ = !Failed(failed); });
    });
  }

  const HttpPeer& peer_;
  asio::io_context io_;
  asio::ip::tcp::resolver resolver_{io_};
  asio::ip::tcp::socket socket_{io_};
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_;
  http::response<http::string_body> response_;
  boost::system::error_code error_;
  bool done_ = false;
};

}  // namespace

absl::StatusOr<HttpAnswer> PostJson(const HttpPeer& peer, const std::string& path, std::string body,
                                    std::chrono::milliseconds patience) {
  return Post(peer, path, std::move(body)).Run(patience);
}

}  // namespace tessera::coordinator
