// Requests whose end two readers could see at different places: none of them may be answered as if
// it were understood, and no byte behind one may become a request.
#include "coordinator/http/request_framing.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/http/http_server.h"
#include "tests/coordinator/http_client.h"

namespace tessera::coordinator {
namespace {

struct Row {
  std::string what;
  std::string bytes;  // a request, faulty
  std::string status = "400";
};

std::string Get(const std::string& fields) {
  return "GET /health HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n";
}

std::string Chunks(const std::string& chunks) {
  return "POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks;
}

// Faults of the header.
std::vector<Row> FaultyHeaders() {
  using namespace std::string_literals;
  return {
      {"unknown coding", Get("Transfer-Encoding: xchunked\r\n"), "501"},
      {"identity", Get("Transfer-Encoding: identity\r\n"), "501"},
      {"gzip alone", Get("Transfer-Encoding: gzip\r\n"), "501"},
      {"gzip, chunked", Get("Transfer-Encoding: gzip, chunked\r\n"), "501"},
      {"two fields", Get("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), "501"},
      {"chunked not last", Get("Transfer-Encoding: chunked, identity\r\n")},
      {"chunked not last, two fields",
       Get("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n")},
      {"chunked twice", Get("Transfer-Encoding: chunked, chunked\r\n")},
      {"chunked twice, two fields",
       Get("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")},
      {"no coding", Get("Transfer-Encoding:\r\n")},
      {"an empty coding", Get("Transfer-Encoding: chunked,\r\n")},
      {"a quoted coding", Get("Transfer-Encoding: \"chunked\"\r\n")},
      {"a coding with a parameter", Get("Transfer-Encoding: chunked;q=1\r\n")},
      {"a control before the coding", Get("Transfer-Encoding: \x0b"
                                          "chunked\r\n")},
      {"length, then coding", Get("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")},
      {"coding, then length", Get("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n")},
      {"gzip, then length", Get("Transfer-Encoding: gzip\r\nContent-Length: 5\r\n")},
      {"chunked in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"a list of lengths", Get("Content-Length: 5, 5\r\n")},
      {"two lengths", Get("Content-Length: 5\r\nContent-Length: 5\r\n")},
      {"two lengths that differ", Get("Content-Length: 5\r\nContent-Length: 6\r\n")},
      {"a signed length", Get("Content-Length: +5\r\n")},
      {"a negative length", Get("Content-Length: -5\r\n")},
      {"a hexadecimal length", Get("Content-Length: 0x5\r\n")},
      {"a length with a space", Get("Content-Length: 5 6\r\n")},
      {"no length", Get("Content-Length:\r\n")},
      {"a length of 2^64", Get("Content-Length: 18446744073709551616\r\n")},
      {"a length of 2^63", Get("Content-Length: 9223372036854775808\r\n")},
      {"a folded coding", Get("Transfer-Encoding:\r\n chunked\r\n")},
      {"a folded header", Get("X: a\r\n\tb\r\n")},
      {"a folded first header", "GET / HTTP/1.1\r\n Host: x\r\n\r\n"},
      {"a space before the colon", Get("Content-Length : 5\r\n")},
      {"a tab before the colon", Get("Transfer-Encoding\t: chunked\r\n")},
      {"a header without a name", Get(": 5\r\n")},
      {"a header without a colon", Get("nonsense\r\n")},
      {"NUL in a header", Get("X: a\0b\r\n"s)},
      {"LF ends a header", Get("X: a\nContent-Length: 5\r\n")},
      {"LF ends the request line", "GET / HTTP/1.1\nHost: x\r\n\r\n"},
      {"LF ends the header", "GET / HTTP/1.1\r\nHost: x\r\n\n"},
      {"CR within a header", Get("X: a\rContent-Length: 5\r\n")},
      {"no Host", "GET / HTTP/1.1\r\n\r\n"},
      {"two Hosts", Get("Host: x\r\n")},
      {"two Hosts in HTTP/1.0", "GET / HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n"},
      {"a list of Hosts", "GET / HTTP/1.1\r\nHost: x, y\r\n\r\n"},
      {"a Host with a space", "GET / HTTP/1.1\r\nHost: x y\r\n\r\n"},
      {"a Host with a user", "GET / HTTP/1.1\r\nHost: x@y\r\n\r\n"},
      {"a Host with a path", "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n"},
      {"a Host with two ports", "GET / HTTP/1.1\r\nHost: x:1:2\r\n\r\n"},
      {"a Host with a word as port", "GET / HTTP/1.1\r\nHost: x:http\r\n\r\n"},
      {"a Host with an open bracket", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n"},
      {"a target with a user", "GET http://a@b/ HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"a target without a host", "GET http:///a HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"HTTP/2 with prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
      {"a target with a space", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"no version", "GET /\r\nHost: x\r\n\r\n"},
      {"TLS", "\x16\x03\x01\x02\x00\x01"s},
  };
}

// Faults behind a header that is fine.
std::vector<Row> FaultyBodies() {
  using namespace std::string_literals;
  return {
      {"LF in a quoted extension", Chunks("1;a=\"x\ny\"\r\nz\r\n0\r\n\r\n")},
      {"NUL in a quoted extension", Chunks("1;a=\"x\0y\"\r\nz\r\n0\r\n\r\n"s)},
      {"a control in a quoted extension", Chunks("1;a=\"x\x01y\"\r\nz\r\n0\r\n\r\n")},
      {"LF in the last chunk's extension", Chunks("1\r\nz\r\n0;a=\"x\ny\"\r\n\r\n")},
      {"LF in an extension", Chunks("1;a\n\r\nz\r\n0\r\n\r\n")},
      {"LF behind a size", Chunks("1\nz\r\n0\r\n\r\n")},
      {"a signed size", Chunks("+1\r\nz\r\n0\r\n\r\n")},
      {"a negative size", Chunks("-1\r\nz\r\n0\r\n\r\n")},
      {"a size with 0x", Chunks("0x1\r\nz\r\n0\r\n\r\n")},
      {"a space before a size", Chunks(" 1\r\nz\r\n0\r\n\r\n")},
      {"a space behind a size", Chunks("1 \r\nz\r\n0\r\n\r\n")},
      {"a size of 17 digits", Chunks("10000000000000001\r\nz\r\n0\r\n\r\n")},
      {"no size", Chunks("\r\nz\r\n0\r\n\r\n")},
      {"data longer than its size", Chunks("1\r\nzz\r\n0\r\n\r\n")},
      {"data that ends with LF", Chunks("1\r\nz\n0\r\n\r\n")},
      {"a length among the trailers", Chunks("1\r\nz\r\n0\r\nContent-Length: 5\r\n\r\n")},
  };
}

std::vector<Row> AllRows() {
  std::vector<Row> rows = FaultyHeaders();
  for (Row& row : FaultyBodies()) rows.push_back(std::move(row));
  return rows;
}

// A server that counts what it takes for a request, and a connection to it.
class FramingDoor {
 public:
  FramingDoor() {
    server_ = HttpServer::Start({}, [this](std::shared_ptr<HttpExchange> exchange) {
                smuggled += exchange->request().path == "/smuggled";
                HttpResponse response;
                response.body = exchange->request().body;
                exchange->Respond(std::move(response));
              }).value();
  }
  ~FramingDoor() { server_->Stop(); }

  // The statuses of all answers to `pieces`, until the server closes: "200 400".
  std::string Statuses(const std::vector<std::string>& pieces) {
    HttpClient client(server_->port());
    const int yes = 1;
    setsockopt(client.socket(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    for (const std::string& piece : pieces) {
      if (!client.Send(piece)) break;  // it has been refused already
    }
    std::string all;
    for (;;) {
      const HttpReply reply = client.Receive();
      if (reply.status == 0) return all;
      if (!all.empty()) all += " ";
      all += std::to_string(reply.status);
    }
  }

  std::atomic<int> smuggled = 0;

 private:
  std::unique_ptr<HttpServer> server_;
};

constexpr char kSmuggled[] = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
const std::string kHarmless = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";

}  // namespace

TEST_CASE("a faulty header is refused as 400 or 501, however it comes in pieces") {
  for (const Row& row : FaultyHeaders()) {
    INFO(row.what);
    for (size_t cut = 0; cut <= row.bytes.size(); ++cut) {
      size_t scanned = 0;
      absl::StatusOr<size_t> end =
          FindHeaderEnd(std::string_view(row.bytes).substr(0, cut), scanned);
      if (end.ok() && *end == 0) end = FindHeaderEnd(row.bytes, scanned);
      const absl::Status status =
          end.ok() ? CheckFraming(std::string_view(row.bytes).substr(0, *end)) : end.status();
      CHECK((status.code() == absl::StatusCode::kUnimplemented ? "501" : "400") == row.status);
      CHECK_FALSE(status.ok());
    }
  }
}

TEST_CASE("the end of a header is found whatever comes at once, and no byte is read twice") {
  const std::string header = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  size_t scanned = 0;
  for (size_t size = 1; size < header.size(); ++size) {
    CHECK(FindHeaderEnd(std::string_view(header).substr(0, size), scanned).value() == 0);
    CHECK(scanned >= size - 1);
  }
  CHECK(FindHeaderEnd(header + "more", scanned).value() == header.size());
}

TEST_CASE("what framing allows is allowed") {
  for (const std::string& header :
       {Get(""), Get("Content-Length: 0\r\n"), Get("Content-Length: 007\r\n"),
        Get("Transfer-Encoding: chunked\r\n"), Get("transfer-encoding:CHUNKED \r\n"), Get("X:\r\n"),
        Get("X: caf\xc3\xa9\ta\r\n"), Get("Upgrade: h2c\r\n"),
        std::string("GET / HTTP/1.0\r\n\r\n"), std::string("GET / HTTP/1.1\r\nHost:\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"),
        std::string("GET http://a.b:1/c HTTP/1.1\r\nHost: under_score.a-b.:\r\n\r\n"),
        std::string("OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")}) {
    INFO(header);
    CHECK(CheckFraming(header).ok());
  }
}

TEST_CASE("a fault is named, with the way out") {
  size_t scanned = 0;
  CHECK_THAT(std::string(FindHeaderEnd("\x16\x03", scanned).status().message()),
             Catch::Contains("http, not https"));
  CHECK_THAT(std::string(FindHeaderEnd("PRI * HTTP/2.0\r\n", scanned).status().message()),
             Catch::Contains("HTTP/1.1, not HTTP/2"));
  CHECK_THAT(std::string(CheckFraming(Get("Transfer-Encoding: gzip\r\n")).message()),
             Catch::Contains("gzip") && Catch::Contains("send chunked alone"));
}

TEST_CASE("bytes behind a request that was not understood are no request") {
  FramingDoor door;
  for (const Row& row : AllRows()) {
    INFO(row.what);
    CHECK(door.Statuses({row.bytes + kSmuggled}) == row.status);
    // Behind a harmless request, and twice.
    CHECK(door.Statuses({kHarmless, row.bytes + row.bytes + kSmuggled}) == "200 " + row.status);
    CHECK(door.Statuses({kHarmless + row.bytes + row.bytes + kSmuggled}) == "200 " + row.status);
  }
  CHECK(door.smuggled == 0);
}

TEST_CASE("a faulty request that comes in two pieces, cut anywhere, is refused once") {
  FramingDoor door;
  for (const Row& row : AllRows()) {
    INFO(row.what);
    for (size_t cut = 1; cut < row.bytes.size(); ++cut) {
      CHECK(door.Statuses({row.bytes.substr(0, cut), row.bytes.substr(cut) + kSmuggled}) ==
            row.status);
    }
  }
  CHECK(door.smuggled == 0);
}

TEST_CASE("a refusal behind a HEAD has a body of its own") {
  auto server = HttpServer::Start({}, [](std::shared_ptr<HttpExchange> exchange) {
                  exchange->Respond({});
                }).value();
  HttpClient client(server->port());
  REQUIRE(client.Send("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n" + Get("Content-Length: x\r\n")));
  CHECK(client.Receive().status == 200);
  CHECK_THAT(client.Receive().body, Catch::Contains("Content-Length is malformed"));
  server->Stop();
}

TEST_CASE("trailers never become headers") {
  HttpRequest seen;
  auto server = HttpServer::Start({}, [&seen](std::shared_ptr<HttpExchange> exchange) {
                  seen = exchange->request();
                  exchange->Respond({});
                }).value();
  HttpClient client(server->port());
  REQUIRE(
      client.Send(Chunks("3\r\nabc\r\n0\r\nAuthorization: Bearer k\r\nOrigin: http://evil\r\n"
                         "Content-Type: text/plain\r\nX-Request-Id: i\r\nHost: evil\r\n"
                         "Connection: close\r\n\r\n")));
  const HttpReply reply = client.Receive();
  CHECK(reply.status == 200);
  CHECK(reply.head.find("Connection: close") == std::string::npos);
  CHECK(seen.body == "abc");
  CHECK(seen.authorization.empty());
  CHECK(seen.origin.empty());
  CHECK(seen.content_type.empty());
  CHECK(seen.request_id.empty());
  REQUIRE(client.Send(kHarmless));
  CHECK(client.Receive().status == 200);
  server->Stop();
}

TEST_CASE("a chunk's header and trailers without end are bounded") {
  FramingDoor door;
  const std::string endless(300'000, 'a');
  CHECK(door.Statuses({Chunks("1;a=" + endless)}) == "400");
  CHECK(door.Statuses({Chunks("0\r\nA: " + endless)}) == "400");
}

TEST_CASE("a client that would go on with HTTP/2 is answered in HTTP/1.1") {
  FramingDoor door;
  CHECK(door.Statuses({Get("Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\n"
                           "HTTP2-Settings: AAMAAABkAAQAAP__\r\n")}) == "200");
}

TEST_CASE("only 100-continue may be expected") {
  FramingDoor door;
  CHECK(door.Statuses({"POST /a HTTP/1.1\r\nHost: x\r\nExpect: a-miracle\r\nContent-Length: 3"
                       "\r\n\r\nabc" +
                       std::string(kSmuggled)}) == "417");
  CHECK(door.Statuses({"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                       "Content-Length: 99999999\r\n\r\n"}) == "413");
  CHECK(door.smuggled == 0);
}

}  // namespace tessera::coordinator
