// The page for browsers: its size, its headers, and that it uses nothing but its own server.

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include "coordinator/http_door/planning_http.h"
#include "coordinator/web/page_files.h"
#include "coordinator/web/page_routes.h"
#include "tests/coordinator/door.h"

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;

constexpr char kBrowser[] = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

PlanningDesk& Desk() {
  static auto* const desk = [] {
    PlanningDeskOptions options;
    options.admin.open = true;
    options.now_seconds = [] { return 0.0; };
    return new PlanningDesk(std::move(options));
  }();
  return *desk;
}

// A door that has the page, and all that the page calls.
HttpApiOptions Options() {
  HttpApiOptions options;
  options.other_routes = PlanRoutes(
      Desk(), [] { return v1::GetClusterReply(); }, /*needs_key=*/false);
  for (OtherRoute& route : PageRoutes("1.2.3")) options.other_routes.push_back(std::move(route));
  return options;
}

// All first groups of a pattern in a text.
std::set<std::string> Found(std::string_view text, const char* pattern) {
  std::set<std::string> found;
  const std::string all(text);
  const std::regex expression(pattern);
  for (std::sregex_iterator it(all.begin(), all.end(), expression), end; it != end; ++it)
    found.insert((*it)[1]);
  return found;
}

std::string HeaderOf(const HttpReply& reply, const std::string& name) {
  const std::set<std::string> values =
      Found(reply.head, ("(?:^|\r\n)" + name + ": ([^\r]*)").c_str());
  return values.size() == 1 ? *values.begin() : "";
}

}  // namespace

TEST_CASE("a browser gets the page at /, others a line of text") {
  Door door(Options());
  const HttpReply page = door.Get("/", kBrowser);
  CHECK(page.status == 200);
  CHECK(HeaderOf(page, "Content-Type") == "text/html; charset=utf-8");
  CHECK_THAT(page.body, Contains("<!doctype html>"));
  CHECK(HeaderOf(page, "Vary") == "Accept");
  for (const char* accept : {"", "Accept: */*\r\n", "Accept: application/json\r\n"}) {
    const HttpReply text = door.Get("/", accept);
    CHECK(text.status == 200);
    CHECK(HeaderOf(text, "Content-Type") == "text/plain");
    CHECK_THAT(text.body, Contains("1.2.3") && Contains("/openapi.json"));
  }
  CHECK(door.Post("/", "{}").status == 405);
  CHECK(door.Get("/page/other.js").status == 404);
}

TEST_CASE("the page and its files are small, and their headers let nothing else in") {
  Door door(Options());
  const std::string html = door.Get("/", kBrowser).body;
  size_t bytes = html.size();
  // All that the page names of itself, and what that names in turn.
  std::set<std::string> files = Found(html, R"re((?:src|href)="(/page/[^"]+)")re");
  REQUIRE(files.size() >= 2);
  for (const PageFile& file : PageFiles()) {
    for (const std::string& name : Found(file.text, R"re(from "\./([^"]+)";)re"))
      files.insert("/page/" + name);
  }
  CHECK(files.size() + 1 == PageFiles().size());
  for (const std::string& path : files) {
    CAPTURE(path);
    const HttpReply reply = door.Get(path);
    REQUIRE(reply.status == 200);
    bytes += reply.body.size();
    CHECK(HeaderOf(reply, "X-Content-Type-Options") == "nosniff");
    CHECK(HeaderOf(reply, "Content-Type") ==
          (path.ends_with(".css") ? "text/css; charset=utf-8" : "text/javascript; charset=utf-8"));
  }
  CHECK(bytes < 100'000);
  const HttpReply page = door.Get("/", kBrowser);
  const std::string policy = HeaderOf(page, "Content-Security-Policy");
  for (const char* part : {"default-src 'none'", "script-src 'self'", "style-src 'self'",
                           "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
                           "frame-ancestors 'none'", "require-trusted-types-for 'script'"}) {
    CHECK_THAT(policy, Contains(part));
  }
  CHECK(policy.find("unsafe") == std::string::npos);
  CHECK(policy.find("http") == std::string::npos);
  CHECK(HeaderOf(page, "Referrer-Policy") == "no-referrer");
}

TEST_CASE("nothing in the page is what its policy forbids, or makes HTML of a text") {
  for (const PageFile& file : PageFiles()) {
    CAPTURE(file.path);
    for (const char* word :
         {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(",
          "localStorage", "sessionStorage", "document.cookie", "indexedDB", "location.search",
          "location.hash", "<style", " style=\"", " onclick=", "@import", "url(", "<img"}) {
      INFO(word);
      CHECK(file.text.find(word) == std::string_view::npos);
    }
    if (file.path.ends_with(".html")) {
      CHECK(Found(file.text, R"re(<script([^>]*)>)re") ==
            std::set<std::string>{R"( type="module" src="/page/page.js")"});
    }
    // No address of another server.
    CHECK(Found(file.text, R"re(["'](https?://[^"']*)["'])re").empty());
  }
}

TEST_CASE("every endpoint that the page calls is one of the server's") {
  Door door(Options());
  const nlohmann::json paths = nlohmann::json::parse(door.Get("/openapi.json").body).at("paths");
  std::set<std::string> called;
  for (const PageFile& file : PageFiles()) {
    if (!file.path.ends_with(".js")) continue;
    called.merge(Found(file.text, R"re(call(?:Json)?\("([^"]*)")re"));
  }
  CHECK(called ==
        std::set<std::string>{"/v1/chat/completions", "/v1/cluster", "/v1/models", "/v1/plan"});
  for (const std::string& path : called) CHECK(paths.contains(path));
  CHECK(door.Get("/v1/cluster").status == 200);
}

}  // namespace tessera::coordinator
