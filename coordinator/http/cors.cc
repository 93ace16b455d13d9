#include "coordinator/http/cors.h"

#include <algorithm>
#include <utility>

namespace tessera::coordinator {
namespace {

// Seconds for which a browser remembers a preflight's answer.
constexpr char kMaxAge[] = "600";

HttpResponse AnswerPreflight(const HttpRequest& request, bool allowed) {
  HttpResponse response;
  response.status = allowed ? 200 : 403;
  response.content_type = "text/plain";
  if (!allowed) return response;
  response.headers = {
      {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
      {"Access-Control-Allow-Headers",
       request.cors_headers.empty() ? "authorization, content-type" : request.cors_headers},
      {"Access-Control-Max-Age", kMaxAge}};
  return response;
}

}  // namespace

HttpAdmit WithCors(std::vector<std::string> origins, HttpAdmit next) {
  if (origins.empty()) return next;
  const bool any = std::find(origins.begin(), origins.end(), "*") != origins.end();
  return [origins = std::move(origins), any, next = std::move(next)](const HttpRequest& request) {
    const bool allowed =
        !request.origin.empty() &&
        (any || std::find(origins.begin(), origins.end(), request.origin) != origins.end());
    // Answers differ by origin, allowed or not: caches must know.
    HttpHeaders headers;
    if (!any) headers.emplace_back("Vary", "Origin");
    if (allowed) {
      headers.emplace_back("Access-Control-Allow-Origin", any ? "*" : request.origin);
      headers.emplace_back("Access-Control-Expose-Headers",
                           "X-Request-Id, Retry-After, x-tessera-ignored-fields, "
                           "x-tessera-not-enforced, x-ratelimit-limit-requests, "
                           "x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
                           "x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, "
                           "x-ratelimit-reset-tokens");
    }
    HttpAdmission admission;
    if (request.method == "OPTIONS" && !request.cors_method.empty()) {
      admission.answer = AnswerPreflight(request, allowed);
    } else {
      admission = next(request);
    }
    admission.headers.insert(admission.headers.end(), headers.begin(), headers.end());
    return admission;
  };
}

}  // namespace tessera::coordinator
