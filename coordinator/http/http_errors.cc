#include "coordinator/http/http_errors.h"

#include <openssl/err.h>
#include <openssl/sslerr.h>

#include <boost/asio/ssl/error.hpp>
#include <boost/beast/http/error.hpp>

#include "absl/strings/str_format.h"

namespace tessera::coordinator {

namespace http = boost::beast::http;

HttpResponse PlainError(int status, const std::string& message) {
  HttpResponse response;
  response.status = status;
  const bool busy = status == 503;
  response.body =
      absl::StrFormat(R"({"error":{"message":"%s","type":"%s","param":null,"code":null}})", message,
                      busy ? "overloaded_error" : "invalid_request_error");
  if (busy) response.headers = {{"Retry-After", "1"}};
  return response;
}

std::string WhyNotHttp(boost::system::error_code error) {
  if (error == http::error::bad_target) return "its target is malformed";
  if (error == http::error::bad_chunk || error == http::error::bad_chunk_extension ||
      error == http::error::bad_line_ending) {
    return "a chunk of its body is malformed";
  }
  if (error == http::error::buffer_overflow)
    return "a chunk's header or the trailers are too large";
  if (error == http::error::partial_message) return "it ends too early";
  return "it is malformed";
}

bool SpeaksPlainHttp(boost::system::error_code error) {
  return error.category() == boost::asio::error::get_ssl_category() &&
         ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST;
}

}  // namespace tessera::coordinator
