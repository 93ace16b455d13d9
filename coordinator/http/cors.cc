#include "coordinator/http/cors.h"

#include <algorithm>
#include <utility>

namespace tessera::coordinator {
namespace {

// Seconds for which a browser remembers a preflight's answer.
constexpr char kMaxAge[] = "600";

// Adds headers to whatever the exchange is answered with.
class MarkedExchange final : public HttpExchange {
 public:
  MarkedExchange(std::shared_ptr<HttpExchange> exchange, HttpHeaders headers)
      : exchange_(std::move(exchange)), headers_(std::move(headers)) {}

  HttpRequest& request() override { return exchange_->request(); }
  void Respond(HttpResponse response) override {
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    exchange_->Respond(std::move(response));
  }
  void BeginStream(HttpHeaders headers) override {
    headers.insert(headers.end(), headers_.begin(), headers_.end());
    exchange_->BeginStream(std::move(headers));
  }
  bool Write(std::string_view bytes) override { return exchange_->Write(bytes); }
  void End() override { exchange_->End(); }
  void OnGone(std::function<void()> gone) override { exchange_->OnGone(std::move(gone)); }

 private:
  const std::shared_ptr<HttpExchange> exchange_;
  const HttpHeaders headers_;
};

}  // namespace

HttpHandler WithCors(std::vector<std::string> origins, HttpHandler next) {
  if (origins.empty()) return next;
  const bool any = std::find(origins.begin(), origins.end(), "*") != origins.end();
  return [origins = std::move(origins), any,
          next = std::move(next)](std::shared_ptr<HttpExchange> exchange) {
    const HttpRequest& request = exchange->request();
    const bool allowed =
        !request.origin.empty() &&
        (any || std::find(origins.begin(), origins.end(), request.origin) != origins.end());
    // Answers differ by origin, allowed or not: caches must know.
    HttpHeaders headers;
    if (!any) headers.emplace_back("Vary", "Origin");
    if (allowed) {
      headers.emplace_back("Access-Control-Allow-Origin", any ? "*" : request.origin);
      headers.emplace_back("Access-Control-Expose-Headers",
                           "X-Request-Id, Retry-After, x-tessera-ignored-fields");
    }
    if (request.method == "OPTIONS" && !request.cors_method.empty()) {
      HttpResponse response;
      response.status = allowed ? 200 : 403;
      response.content_type = "text/plain";
      response.headers = std::move(headers);
      if (allowed) {
        response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
        response.headers.emplace_back(
            "Access-Control-Allow-Headers",
            request.cors_headers.empty() ? "authorization, content-type" : request.cors_headers);
        response.headers.emplace_back("Access-Control-Max-Age", kMaxAge);
      }
      exchange->Respond(std::move(response));
      return;
    }
    next(std::make_shared<MarkedExchange>(std::move(exchange), std::move(headers)));
  };
}

}  // namespace tessera::coordinator
