#include "coordinator/http/json_post.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "third_party/absl/str_cat.h"
#include "third_party/linux/host_lookup.h"
#include "tls/asio_context.h"

namespace tessera::coordinator {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

class Post {
 public:
  Post(const HttpPeer& peer, const std::string& path, std::string body, const PostTerms& terms)
      : peer_(peer), terms_(terms) {
    request_.method(http::verb::post);
    request_.target(path);
    request_.version(11);
    request_.set(http::field::host, peer.authority);
    request_.set(http::field::content_type, "application/json");
    request_.set(http::field::connection, "close");
    if (!terms.authorization.empty()) request_.set(http::field::authorization, terms.authorization);
    request_.body() = std::move(body);
    request_.prepare_payload();
  }

  absl::StatusOr<HttpAnswer> Run(milliseconds patience) {
    const auto until = steady_clock::now() + patience;
    const auto found = LookUpHost(peer_.host, 1e-3 * static_cast<double>(patience.count()));
    if (!found.ok()) return found.status();
    std::vector<asio::ip::tcp::endpoint> ends;
    const auto port = static_cast<uint16_t>(std::atoi(peer_.port.c_str()));
    for (const std::string& numeric : *found)
      ends.emplace_back(asio::ip::make_address(numeric, error_), port);
    stream_.tcp().async_connect(ends, [this](auto error, const auto&) {
      if (!Failed(error)) Encrypt();
    });
    io_.run_until(until);
    if (done_)
      return HttpAnswer{static_cast<int>(response_.result_int()), std::move(response_.body())};
    if (!why_.empty()) return absl::UnavailableError(why_);
    stream_.tcp().close();
    io_.run();  // handlers are called with what they refer to still there
    return absl::UnavailableError(StrCat("no answer in ", patience.count(), " ms"));
  }

 private:
  bool Failed(const boost::system::error_code& error) {
    if (error) why_ = error.message();
    return static_cast<bool>(error);
  }

  void Encrypt() {
    if (!stream_.encrypted()) return Write();
    const std::string& name = terms_.server_name.empty() ? peer_.host : terms_.server_name;
    if (!ExpectName(stream_, name)) {
      why_ = StrCat("no certificate can be for \"", name, "\"");
      return;
    }
    stream_.AsyncHandshake(EncryptableStream::Side::client, [this](auto error) {
      if (!Failed(error)) return Write();
      const long refused = SSL_get_verify_result(stream_.session());
      if (refused != X509_V_OK)
        why_ = StrCat("its certificate is refused: ", X509_verify_cert_error_string(refused));
    });
  }

  void Write() {
    http::async_write(stream_, request_, [this](auto error, size_t) {
      if (Failed(error)) return;
      http::async_read(stream_, buffer_, response_,
                       [this](auto failed, size_t) { done_ = !Failed(failed); });
    });
  }

  const HttpPeer& peer_;
  const PostTerms& terms_;
  asio::io_context io_;
  EncryptableStream stream_{io_, terms_.tls};
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_;
  http::response<http::string_body> response_;
  boost::system::error_code error_;
  std::string why_;  // there is no answer; empty: it may come
  bool done_ = false;
};

}  // namespace

absl::StatusOr<HttpAnswer> PostJson(const HttpPeer& peer, const std::string& path, std::string body,
                                    milliseconds patience, const PostTerms& terms) {
  return Post(peer, path, std::move(body), terms).Run(patience);
}

}  // namespace tessera::coordinator
