#include "coordinator/http/cors.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "tests/coordinator/http_client.h"

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;

std::unique_ptr<HttpServer> Serve(std::vector<std::string> origins) {
  HttpServerOptions options;
  options.admit = WithCors(std::move(origins), [](const HttpRequest& header) {
    HttpAdmission admission;
    if (header.path == "/stream") return admission;
    admission.answer.emplace();
    admission.answer->status = header.method == "OPTIONS" ? 405 : 401;
    return admission;
  });
  return HttpServer::Start(options,
                           [](std::shared_ptr<HttpExchange> exchange) {
                             exchange->BeginStream({});
                             exchange->End();
                           })
      .value();
}

HttpReply Ask(const HttpServer& server, const char* method, const char* path,
              const std::string& headers) {
  HttpClient client(server.port());
  REQUIRE(client.SendRequest(method, path, "", headers));
  return client.Receive();
}

constexpr char kOrigin[] = "Origin: https://app.example\r\n";
constexpr char kPreflight[] =
    "Origin: https://app.example\r\nAccess-Control-Request-Method: POST\r\n"
    "Access-Control-Request-Headers: authorization,x-stainless-os\r\n";

bool Marked(const HttpReply& reply) {
  return reply.head.find("Access-Control-Allow-Origin") != std::string::npos;
}

}  // namespace

TEST_CASE("a preflight of an allowed origin is answered without keys") {
  for (const char* allowed : {"https://app.example", "*"}) {
    const auto server = Serve({"https://other.example", allowed});
    const HttpReply reply = Ask(*server, "OPTIONS", "/v1/chat/completions", kPreflight);
    CHECK(reply.status == 200);
    CHECK_THAT(reply.head, Contains(std::string("Access-Control-Allow-Origin: ") + allowed));
    CHECK_THAT(reply.head, Contains("Access-Control-Allow-Methods: GET, POST, OPTIONS"));
    CHECK_THAT(reply.head, Contains("Access-Control-Allow-Headers: authorization,x-stainless-os"));
  }
}

TEST_CASE("answers, errors and streams of an allowed origin are marked, of others not") {
  const auto server = Serve({"https://app.example"});
  for (const char* path : {"/error", "/stream"}) {
    const HttpReply reply = Ask(*server, "GET", path, kOrigin);
    CHECK_THAT(reply.head, Contains("Access-Control-Allow-Origin: https://app.example"));
    CHECK_THAT(reply.head, Contains("Vary: Origin"));
    CHECK_FALSE(Marked(Ask(*server, "GET", path, "Origin: https://evil.example\r\n")));
    CHECK_FALSE(Marked(Ask(*server, "GET", path, "")));
  }
  const HttpReply refused =
      Ask(*server, "OPTIONS", "/x",
          "Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n");
  CHECK(refused.status == 403);
  CHECK_FALSE(Marked(refused));
  // OPTIONS that is no preflight is the server's own affair.
  CHECK(Ask(*server, "OPTIONS", "/x", kOrigin).status == 405);
}

TEST_CASE("without allowed origins nothing changes") {
  const auto server = Serve({});
  CHECK(Ask(*server, "OPTIONS", "/x", kPreflight).status == 405);
  CHECK_FALSE(Marked(Ask(*server, "GET", "/x", kOrigin)));
}

}  // namespace tessera::coordinator
