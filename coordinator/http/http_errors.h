// What the server says of requests that it answers itself. Thread rule: pure functions.
#pragma once

#include <boost/system/error_code.hpp>
#include <string>
#include <string_view>

#include "coordinator/http/http_server.h"

namespace tessera::coordinator {

// An error as OpenAI's clients read it; 503 with Retry-After.
HttpResponse PlainError(int status, const std::string& message);

// What is wrong with a body, or a header that CheckFraming (request_framing.h) lets through.
std::string WhyNotHttp(boost::system::error_code error);

// Whether a TLS handshake failed because the client sends HTTP without TLS; what to answer then.
bool SpeaksPlainHttp(boost::system::error_code error);
inline constexpr std::string_view kSpeaksHttps =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    "this port speaks https, not http\n";

}  // namespace tessera::coordinator
