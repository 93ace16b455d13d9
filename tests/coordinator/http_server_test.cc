#include "coordinator/http/http_server.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/http/http_refusal.h"
#include "tests/coordinator/http_client.h"
#include "tests/logged_lines.h"

namespace tessera::coordinator {
namespace {

std::unique_ptr<HttpServer> Serve(HttpHandler handler, HttpServerOptions options = {}) {
  return std::move(HttpServer::Start(options, std::move(handler)).value());
}

void Echo(std::shared_ptr<HttpExchange> exchange) {
  HttpResponse response;
  response.body =
      exchange->request().method + " " + exchange->request().path + " " + exchange->request().body;
  exchange->Respond(std::move(response));
}

// Lets a test wait for something that happens on an I/O thread.
class Flag {
 public:
  void Set() {
    std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  bool IsSet() {
    std::lock_guard lock(mutex_);
    return set_;
  }
  bool Wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

}  // namespace

TEST_CASE("requests of one connection are answered in turn, pipelined ones too") {
  auto server = Serve(Echo);
  HttpClient client(server->port());
  REQUIRE(client.SendRequest("POST", "/a?x=1", "one"));
  CHECK(client.Receive().body == "POST /a one");
  REQUIRE(client.Send("GET /b HTTP/1.1\r\nHost: h\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n"));
  CHECK(client.Receive().body == "GET /b ");
  CHECK(client.Receive().body == "GET /c ");
  REQUIRE(client.Send("GET /d HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  CHECK(client.Receive().head.find("Connection: close") != std::string::npos);
  CHECK(client.WaitForClose());
}

TEST_CASE(
    "what is not HTTP, too large or incomplete gets an error, and the next client is served") {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  std::mutex mutex;
  std::vector<std::string> refused;
  options.refused = [&](std::string_view path, int) {
    std::lock_guard lock(mutex);
    refused.emplace_back(path);
  };
  auto server = Serve(Echo, options);
  HttpClient garbage(server->port());
  REQUIRE(garbage.Send("\x01\x02 hello\r\n\r\n"));
  CHECK(garbage.Receive().status == 400);
  HttpClient large(server->port());
  REQUIRE(large.Send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n"));
  CHECK(large.Receive().status == 413);
  {
    std::lock_guard lock(mutex);
    CHECK(refused == std::vector<std::string>{"/", "/a"});
  }
  HttpClient heads(server->port());
  REQUIRE(heads.Send("GET /a HTTP/1.1\r\nX: " + std::string(70000, 'a') + "\r\n\r\n"));
  CHECK(heads.Receive().status == 431);
  HttpClient cut(server->port());
  REQUIRE(cut.Send("POST /a HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc"));
  cut.Close();
  HttpClient client(server->port());
  REQUIRE(client.SendRequest("GET", "/ok", ""));
  CHECK(client.Receive().body == "GET /ok ");
}

TEST_CASE("a target with scheme and host is its path; HTTP/1.1 without Host is refused") {
  const auto server = Serve(Echo);
  const auto ask = [&](const std::string& head) {
    HttpClient client(server->port());
    REQUIRE(client.Send(head + "\r\n\r\n"));
    return client.Receive();
  };
  for (const char* target : {"http://h/a/b?c=d", "HTTP://h:80/a/b", "https://h/a/b"}) {
    CHECK(ask(std::string("GET ") + target + " HTTP/1.1\r\nHost: h").body == "GET /a/b ");
  }
  CHECK(ask("GET http://h HTTP/1.1\r\nHost: h").body == "GET / ");
  CHECK(ask("GET http://h?x=/y HTTP/1.1\r\nHost: h").body == "GET / ");
  for (const char* head : {"GET /a HTTP/1.1\r\nAccept: */*", "GET /a HTTP/1.1",
                           "GET /a HTTP/1.1\r\nHost: h\r\nHost: i"}) {
    const HttpReply reply = ask(head);
    CHECK(reply.status == 400);
    CHECK_THAT(reply.body, Catch::Contains("Host") && Catch::Contains("\"code\":null"));
  }
  CHECK(ask("GET /a HTTP/1.0").status == 200);
}

TEST_CASE("what is not HTTP is refused in plain words") {
  const auto server = Serve(Echo);
  for (const char* bytes : {"\x16\x03\x01 hello\r\n\r\n", "GET / HTTP/9.9\r\nHost: h\r\n\r\n",
                            "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n",
                            "GET / HTTP/1.1\r\nHost: h\r\nbad header\r\n\r\n"}) {
    HttpClient client(server->port());
    REQUIRE(client.Send(bytes));
    const HttpReply reply = client.Receive();
    CHECK(reply.status == 400);
    CHECK_THAT(reply.body, Catch::Contains("this is not an HTTP request: "));
  }
}

TEST_CASE("a client that asks to continue is told to") {
  auto server = Serve(Echo);
  HttpClient client(server->port());
  REQUIRE(client.Send(
      "POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"));
  REQUIRE(client.ReadUntil("HTTP/1.1 100 Continue\r\n\r\n"));
  REQUIRE(client.Send("abc"));
  CHECK(client.Receive().status == 100);
  CHECK(client.Receive().body == "POST /a abc");
}

TEST_CASE("a request is judged by its header: its body is not read, nor asked for") {
  std::atomic<int> handled = 0;
  HttpServerOptions options;
  options.admit = [](const HttpRequest& header) {
    HttpAdmission admission;
    admission.headers = {{"X-Any", "a"}};
    if (header.authorization == "k") return admission;
    admission.answer.emplace();
    admission.answer->status = 401;
    admission.answer->body = header.on_loopback && header.has_body ? "with body" : "";
    return admission;
  };
  auto server = Serve(
      [&handled](std::shared_ptr<HttpExchange> exchange) {
        ++handled;
        Echo(std::move(exchange));
      },
      options);
  // The body is announced, and never comes.
  for (const char* more : {"", "Expect: 100-continue\r\n"}) {
    HttpClient client(server->port());
    REQUIRE(client.Send("POST /a HTTP/1.1\r\nHost: h\r\n" + std::string(more) +
                        "Content-Length: 1000\r\n\r\n"));
    const HttpReply reply = client.Receive();
    CHECK(reply.status == 401);
    CHECK(reply.body == "with body");
    CHECK(reply.head.find("X-Any: a") != std::string::npos);
    CHECK(reply.head.find("Connection: close") != std::string::npos);
    CHECK(client.WaitForClose());
  }
  // Chunks, and what would be a request behind them.
  HttpClient chunks(server->port());
  REQUIRE(
      chunks.Send("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "1\r\nz\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\nAuthorization: k\r\n\r\n"));
  CHECK(chunks.Receive().status == 401);
  CHECK(chunks.Receive().status == 0);
  CHECK(handled == 0);
  // Without a body the connection goes on.
  HttpClient client(server->port());
  REQUIRE(client.SendRequest("GET", "/a", ""));
  CHECK(client.Receive().status == 401);
  REQUIRE(client.SendRequest("GET", "/b", "", "Authorization: k\r\n"));
  const HttpReply admitted = client.Receive();
  CHECK(admitted.status == 200);
  CHECK(admitted.head.find("X-Any: a") != std::string::npos);
  CHECK(handled == 1);
}

TEST_CASE("the bodies in memory have a bound in sum; small ones come through") {
  std::mutex mutex;
  std::vector<int> refused;
  HttpServerOptions options;
  options.max_bodies_bytes = 4 << 20;
  options.refused = [&](std::string_view, int status) {
    std::lock_guard lock(mutex);
    refused.push_back(status);
  };
  auto server = Serve(Echo, options);
  // 3 MB of 4 are for large bodies; this one takes 2 of them and does not end.
  auto slow = std::make_unique<HttpClient>(server->port());
  REQUIRE(slow->Send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2000001\r\n\r\n" +
                     std::string(2'000'000, 'x')));
  // By its length at the header. A client that waits for 100 Continue sends nothing that could take
  // the slow one's place while its bytes are on their way.
  HttpReply reply;
  for (int tries = 0; tries < 1000 && reply.status != 503; ++tries) {
    HttpClient second(server->port());
    REQUIRE(
        second.Send("POST /b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                    "Content-Length: 1500000\r\n\r\n"));
    reply = second.Receive();
    if (reply.status != 503) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const auto is_refused = [](const HttpReply& reply) {
    CHECK(reply.status == 503);
    CHECK(reply.body.find("--max-body-memory-bytes") != std::string::npos);
    CHECK(reply.body.find("overloaded_error") != std::string::npos);
    CHECK(reply.head.find("Retry-After: 1") != std::string::npos);
  };
  is_refused(reply);
  // By what has come where the length is not known.
  HttpClient chunks(server->port());
  REQUIRE(
      chunks.Send("POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n16e360\r\n" +
                  std::string(1'500'000, 'x') + "\r\n0\r\n\r\n"));
  is_refused(chunks.Receive());
  HttpClient small(server->port());
  REQUIRE(small.SendRequest("POST", "/c", std::string(60'000, 'y')));
  CHECK(small.Receive().status == 200);
  {
    std::lock_guard lock(mutex);
    CHECK(std::count(refused.begin(), refused.end(), 503) == 2);
  }
  // No patience helps a body that is larger than all of it.
  HttpClient never(server->port());
  REQUIRE(never.Send("POST /d HTTP/1.1\r\nHost: h\r\nContent-Length: 3500000\r\n\r\n"));
  CHECK(never.Receive().status == 413);
  slow.reset();
  reply = {};
  for (int tries = 0; tries < 1000 && reply.status != 200; ++tries) {
    HttpClient second(server->port());
    REQUIRE(second.SendRequest("POST", "/b", std::string(2'000'000, 'x')));
    reply = second.Receive();
  }
  CHECK(reply.status == 200);
}

TEST_CASE("a body counts as long as it is in memory") {
  const auto budget = std::make_shared<BodyBudget>(1 << 20);
  {
    BodyShare first(budget), second(budget);
    CHECK(first.Grow(700'000));
    CHECK_FALSE(second.Grow(100'000));
    CHECK(second.Grow(BodyBudget::kSmallBytes));
    CHECK_FALSE(second.MayGrow(BodyBudget::kSmallBytes + 100'000));
    CHECK(budget->used_bytes() == 700'000 + BodyBudget::kSmallBytes);
  }
  CHECK(budget->used_bytes() == 0);
  CHECK(budget->EverFits(700'000));
  CHECK_FALSE(budget->EverFits(900'000));
}

TEST_CASE("a stream arrives in order, from another thread, and the connection goes on") {
  std::thread writer;
  auto server = Serve([&](std::shared_ptr<HttpExchange> exchange) {
    if (exchange->request().path != "/stream") return Echo(std::move(exchange));
    writer = std::thread([exchange] {
      exchange->BeginStream({{"X-Request-Id", "abc"}});
      for (int i = 0; i < 100; ++i) exchange->Write("data: " + std::to_string(i) + "\n\n");
      exchange->End();
    });
  });
  HttpClient client(server->port());
  REQUIRE(client.SendRequest("GET", "/stream", ""));
  const HttpReply reply = client.Receive();
  writer.join();
  std::string expected;
  for (int i = 0; i < 100; ++i) expected += "data: " + std::to_string(i) + "\n\n";
  CHECK(reply.body == expected);
  CHECK(reply.head.find("text/event-stream") != std::string::npos);
  CHECK(reply.head.find("X-Request-Id: abc") != std::string::npos);
  REQUIRE(client.SendRequest("GET", "/next", ""));
  CHECK(client.Receive().body == "GET /next ");
}

TEST_CASE("a client that goes away while nothing is written is noticed") {
  Flag gone;
  std::shared_ptr<HttpExchange> held;
  auto server = Serve([&](std::shared_ptr<HttpExchange> exchange) {
    exchange->OnGone([&gone] { gone.Set(); });
    exchange->BeginStream({});
    held = std::move(exchange);
  });
  HttpClient client(server->port());
  REQUIRE(client.SendRequest("GET", "/", ""));
  REQUIRE(client.ReadUntil("\r\n\r\n"));
  client.Close();
  CHECK(gone.Wait());
  CHECK_FALSE(held->Write("x"));
  server->Stop();
}

TEST_CASE("a client that goes away behind the next request's bytes is noticed") {
  for (const size_t ahead : {size_t{2}, size_t{100'000}}) {
    Flag gone;
    std::shared_ptr<HttpExchange> held;
    auto server = Serve([&](std::shared_ptr<HttpExchange> exchange) {
      exchange->OnGone([&gone] { gone.Set(); });
      held = std::move(exchange);
    });
    HttpClient client(server->port());
    REQUIRE(client.SendRequest("GET", "/", ""));
    REQUIRE(client.Send("GET /" + std::string(ahead, 'a')));
    client.Close();
    CHECK(gone.Wait());
    server->Stop();
  }
}

TEST_CASE("a client that shuts only its sending side gets its whole answers") {
  auto server = Serve([&](std::shared_ptr<HttpExchange> exchange) {
    std::thread([exchange] {
      // Longer than it takes to see the end of what the client sends.
      std::this_thread::sleep_for(std::chrono::milliseconds(1300));
      if (exchange->request().path != "/stream") return Echo(exchange);
      exchange->BeginStream({});
      for (int i = 0; i < 5; ++i) {
        exchange->Write("data: " + std::to_string(i) + "\n\n");
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
      }
      exchange->End();
    }).detach();
  });
  {
    HttpClient client(server->port());
    REQUIRE(client.SendRequest("POST", "/first", "abc"));
    REQUIRE(client.SendRequest("GET", "/second", ""));
    REQUIRE(shutdown(client.socket(), SHUT_WR) == 0);
    const HttpReply first = client.Receive();
    CHECK(first.head.starts_with("HTTP/1.1 200 OK\r\n"));
    CHECK(first.body == "POST /first abc");
    CHECK(client.Receive().body == "GET /second ");
    CHECK(client.WaitForClose());
  }
  {
    HttpClient old(server->port());
    REQUIRE(old.Send("GET /old HTTP/1.0\r\n\r\n"));
    REQUIRE(shutdown(old.socket(), SHUT_WR) == 0);
    const HttpReply reply = old.Receive();
    CHECK(reply.status == 200);
    CHECK(reply.body == "GET /old ");
  }
  HttpClient streaming(server->port());
  REQUIRE(streaming.SendRequest("GET", "/stream", ""));
  REQUIRE(shutdown(streaming.socket(), SHUT_WR) == 0);
  const HttpReply stream = streaming.Receive();
  CHECK(stream.head.starts_with("HTTP/1.1 200 OK\r\n"));
  std::string events = stream.body;  // without comments
  for (size_t at = events.find(":\n\n"); at != std::string::npos; at = events.find(":\n\n"))
    events.erase(at, 3);
  CHECK(events == "data: 0\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\n");
  server->Stop();
}

TEST_CASE("a client that shuts its sending side and goes away later is noticed") {
  Flag gone;
  std::shared_ptr<HttpExchange> held;
  auto server = Serve([&](std::shared_ptr<HttpExchange> exchange) {
    exchange->OnGone([&gone] { gone.Set(); });
    held = std::move(exchange);
  });
  HttpClient client(server->port());
  REQUIRE(client.SendRequest("GET", "/", ""));
  REQUIRE(shutdown(client.socket(), SHUT_WR) == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK_FALSE(gone.IsSet());
  client.Close();
  CHECK(gone.Wait());
  server->Stop();
}

TEST_CASE("what is sent while the answer is made is the next request") {
  Flag sent;
  auto server = Serve([&](std::shared_ptr<HttpExchange> exchange) {
    if (exchange->request().path == "/first") {
      std::thread([&sent, exchange] {
        sent.Wait();
        Echo(exchange);
      }).detach();
    } else {
      Echo(exchange);
    }
  });
  HttpClient client(server->port());
  REQUIRE(client.SendRequest("GET", "/first", ""));
  const std::string large(50'000, 'b');
  REQUIRE(client.SendRequest("POST", "/second", large));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // part of it is read ahead
  sent.Set();
  CHECK(client.Receive().body == "GET /first ");
  CHECK(client.Receive().body == "POST /second " + large);
}

TEST_CASE("a client that sends all of a body that is too large still reads why it was refused") {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  auto server = Serve(Echo, options);
  HttpClient client(server->port());
  CHECK(client.SendRequest("POST", "/", std::string(20 << 20, 'a')));
  CHECK(client.Receive().status == 413);
}

TEST_CASE("a stream to a client of HTTP/1.0 has no chunks and ends with the connection") {
  auto server = Serve([](std::shared_ptr<HttpExchange> exchange) {
    exchange->BeginStream({});
    exchange->Write("data: 1\n\n");
    exchange->End();
  });
  HttpClient client(server->port());
  REQUIRE(client.Send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  CHECK(client.ReadUntil("\r\n\r\ndata: 1\n\n"));
  CHECK(client.WaitForClose());
}

TEST_CASE("a reader that does not read is bounded, then cut") {
  Flag gone;
  std::atomic<int64_t> accepted = 0;
  HttpServerOptions options;
  options.max_pending_bytes = 64 << 10;
  options.socket_send_buffer_bytes = 16 << 10;
  std::thread writer;
  auto server = Serve(
      [&](std::shared_ptr<HttpExchange> exchange) {
        exchange->OnGone([&gone] { gone.Set(); });
        writer = std::thread([&, exchange] {
          exchange->BeginStream({});
          const std::string piece(1000, 'x');
          while (exchange->Write(piece)) {
            accepted += 1000;
            std::this_thread::sleep_for(std::chrono::microseconds(50));
          }
        });
      },
      options);
  HttpClient client(server->port());
  const int small = 4096;
  setsockopt(client.socket(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  REQUIRE(client.SendRequest("GET", "/", ""));
  CHECK(gone.Wait());
  writer.join();
  // Our 64 KiB, and the kernel's buffers on both sides of the loopback.
  CHECK(accepted < (16 << 20));
}

TEST_CASE("an exchange that nobody answers closes its connection") {
  auto server = Serve([](std::shared_ptr<HttpExchange>) {});
  HttpClient client(server->port());
  REQUIRE(client.SendRequest("GET", "/", ""));
  CHECK(client.WaitForClose());
}

TEST_CASE("a taken port is an error that names it; draining closes idle connections") {
  auto server = Serve(Echo);
  HttpServerOptions same;
  same.port = server->port();
  const auto second = HttpServer::Start(same, Echo);
  CHECK(std::string(second.status().message()).find(std::to_string(server->port())) !=
        std::string::npos);
  HttpClient client(server->port());
  REQUIRE(client.SendRequest("GET", "/", ""));
  CHECK(client.Receive().status == 200);
  server->Drain();
  CHECK(client.WaitForClose());
}

TEST_CASE("a connection beyond the limit is told so, and one line in the log for all of them") {
  const tests::LoggedLines logged("coordinator");
  HttpServerOptions options;
  options.max_connections = 1;
  auto server = Serve(Echo, options);
  HttpClient first(server->port());
  REQUIRE(first.SendRequest("GET", "/a", ""));
  REQUIRE(first.Receive().status == 200);
  for (int i = 0; i < 5; ++i) {
    HttpClient more(server->port());
    REQUIRE(more.SendRequest("GET", "/b", ""));
    const HttpReply reply = more.Receive();
    CHECK(reply.status == 503);
    CHECK(reply.head.find("Retry-After: 1") != std::string::npos);
    CHECK(reply.body.find("1 connections are open (the limit)") != std::string::npos);
    CHECK(more.WaitForClose());
  }
  CHECK(logged.Count("refused with 503") == 1);
  REQUIRE(first.SendRequest("GET", "/c", ""));
  CHECK(first.Receive().status == 200);
}

TEST_CASE(
    "out of descriptors: one line in the log, and service goes on when there are some again") {
  const tests::LoggedLines logged("coordinator");
  auto server = Serve(Echo);
  HttpClient client(server->port());
  REQUIRE(client.SendRequest("GET", "/a", ""));
  REQUIRE(client.Receive().status == 200);
  HttpClient waiting(server->port());
  REQUIRE(waiting.SendRequest("GET", "/b", ""));
  REQUIRE(waiting.Receive().status == 200);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  // The client's end gets the last descriptor there is.
  const int next = dup(0);
  close(next);
  const rlimit tight = {static_cast<rlim_t>(next + 1), before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
  {
    HttpClient late(server->port());
    REQUIRE(late.SendRequest("GET", "/c", ""));
    for (int i = 0; i < 1000 && logged.Count("could not be accepted") == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(600));  // it is tried again meanwhile
    CHECK(logged.Count("could not be accepted") == 1);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(late.Receive().body == "GET /c ");
  }
}

TEST_CASE("a warning that repeats is said at intervals, with how often") {
  PacedWarning warning;
  CHECK(warning.Next("full", 100) == "full");
  CHECK(warning.Next("full", 101).empty());
  CHECK(warning.Next("full", 109.9).empty());
  CHECK(warning.Next("full", 110.1) == "full (and 2 times since the last line)");
  CHECK(warning.Next("full", 200) == "full");
}

}  // namespace tessera::coordinator
