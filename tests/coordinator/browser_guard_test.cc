#include "coordinator/http/browser_guard.h"

#include <catch2/catch.hpp>
#include <string>

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;

const BrowserGuard& Guard() {
  static const BrowserGuard guard(
      {.allowed_hosts = {"llm.Example.com", "*.tunnel.example"},
       .allowed_origins = {"https://app.example", "chrome-extension://abc", "null"},
       .machine_name = "Box.lan"});
  return guard;
}

HttpRequest Request(const std::string& host, const std::string& origin = "") {
  HttpRequest request;
  request.on_loopback = true;
  request.host = host;
  request.origin = origin;
  return request;
}

int Status(const HttpRequest& request) {
  const auto refusal = Guard().Check(request);
  return refusal.has_value() ? refusal->status : 200;
}

}  // namespace

TEST_CASE("names of this machine pass as Host on loopback") {
  for (const char* host : {"",
                           "localhost",
                           "LOCALHOST",
                           "localhost.",
                           "localhost:8000",
                           "localhost.:8000",
                           "a.localhost",
                           "127.0.0.1",
                           "127.0.0.1:9000",
                           "127.0.0.2",
                           "127.1",
                           "0.0.0.0:1",
                           "[::1]",
                           "[::1]:8000",
                           "[::ffff:127.0.0.1]:1",
                           "10.1.2.3:80",
                           "203.0.113.5",
                           "[fe80::1%25eth0]:80",
                           "host.docker.internal:8000",
                           "printer.local",
                           "box.lan",
                           "BOX",
                           "box.lan.:8000",
                           "llm.example.com",
                           "LLM.example.com.:443",
                           "a.tunnel.example",
                           "a.b.tunnel.example"}) {
    INFO(host);
    CHECK(Status(Request(host)) == 200);
  }
}

TEST_CASE("a foreign Host is refused on loopback, and the flag is named") {
  for (const char* host :
       {"evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example",
        "evillocalhost", "evil-internal", "boxer", "xllm.example.com", "tunnel.example", "local",
        "127.0.0.1.nip.io", "lan", "1.2.3.4.5"}) {
    INFO(host);
    CHECK(Status(Request(host)) == 403);
    HttpRequest target = Request("localhost");
    target.target_authority = host;
    CHECK(Status(target) == 403);
    HttpRequest elsewhere = Request(host);
    elsewhere.on_loopback = false;
    CHECK(Status(elsewhere) == 200);
  }
  CHECK_THAT(Guard().Check(Request("evil.example:8000"))->why,
             Contains("'evil.example'") && Contains("--allowed-hosts evil.example"));
}

TEST_CASE("pages of this machine and programs pass as Origin on loopback") {
  for (const char* origin : {"",
                             "http://localhost",
                             "http://localhost:3000",
                             "https://LOCALHOST:1",
                             "http://tauri.localhost",
                             "http://127.0.0.1:5173",
                             "http://127.8.9.1",
                             "http://[::1]:80",
                             "http://[::ffff:127.0.0.1]",
                             "http://0.0.0.0:7860",
                             "tauri://localhost",
                             "app://-",
                             "file://",
                             "vscode-webview://0abc",
                             "https://app.example",
                             "chrome-extension://abc",
                             "null",
                             "https://llm.example.com",
                             "http://llm.example.com:3000",
                             "https://x.tunnel.example"}) {
    INFO(origin);
    CHECK(Status(Request("localhost:8000", origin)) == 200);
  }
}

TEST_CASE("a foreign Origin is refused on loopback, and the flag is named") {
  for (const char* origin :
       {"http://evil.example", "https://evil.example", "http://203.0.113.5", "http://10.0.0.7:3000",
        "http://[2001:db8::1]", "http://localhost.evil.example", "https://app.example.evil.example",
        "http://app.example", "http://printer.local", "http://a.internal", "http://box.lan",
        "chrome-extension://other", "moz-extension://x", "ws://localhost.evil", "evil",
        "HTTP://EVIL"}) {
    INFO(origin);
    CHECK(Status(Request("localhost:8000", origin)) == 403);
    HttpRequest elsewhere = Request("localhost:8000", origin);
    elsewhere.on_loopback = false;
    CHECK(Status(elsewhere) == 200);
  }
  CHECK_THAT(Guard().Check(Request("", "http://evil.example"))->why,
             Contains("--allowed-origins http://evil.example"));
  const BrowserGuard none({});
  CHECK(none.Check(Request("localhost", "null"))->status == 403);
  const BrowserGuard any({.allowed_hosts = {"*"}, .allowed_origins = {"*"}});
  CHECK_FALSE(any.Check(Request("evil.example", "http://evil.example")).has_value());
}

TEST_CASE("the server's own page passes, where the name cannot be somebody else's") {
  CHECK(Status(Request("192.168.1.5:8000", "http://192.168.1.5:8000")) == 200);
  CHECK(Status(Request("192.168.1.5", "https://192.168.1.5")) == 200);
  CHECK(Status(Request("box.lan", "https://box.lan")) == 200);
  CHECK(Status(Request("192.168.1.5:8000", "http://192.168.1.5:3000")) == 403);
  CHECK(Status(Request("192.168.1.5:8000", "http://192.168.1.6:8000")) == 403);
  CHECK(Status(Request("printer.local", "http://printer.local")) == 403);
}

TEST_CASE("the body of a page is JSON by its Content-Type; other programs send what they like") {
  const auto status = [](const char* type, const char* origin, const char* site, bool has_body) {
    HttpRequest request = Request("localhost", origin);
    request.content_type = type;
    request.fetch_site = site;
    request.has_body = has_body;
    request.on_loopback = false;  // the rule holds on every listener
    return Status(request);
  };
  for (const char* type :
       {"", "text/plain", "application/x-www-form-urlencoded", "application/jsonp",
        "text/plain; application/json", "multipart/form-data; boundary=a"}) {
    INFO(type);
    CHECK(status(type, "http://localhost:3000", "", true) == 415);
    CHECK(status(type, "", "same-origin", true) == 415);
    CHECK(status(type, "", "", true) == 200);
    CHECK(status(type, "", "cross-site", false) == 200);
  }
  for (const char* type : {"application/json", "Application/JSON; charset=utf-8",
                           "application/vnd.api+json", "application/json ;x"}) {
    INFO(type);
    CHECK(status(type, "http://localhost:3000", "cross-site", true) == 200);
  }
}

}  // namespace tessera::coordinator
