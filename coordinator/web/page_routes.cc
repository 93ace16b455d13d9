#include "coordinator/web/page_routes.h"

#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/api/front_door.h"
#include "coordinator/web/page_files.h"

namespace tessera::coordinator {
namespace {

constexpr std::string_view kPage = "/page/page.html";
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

std::string_view TypeOf(std::string_view path) {
  if (path.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (path.ends_with(".css")) return "text/css; charset=utf-8";
  return "text/html; charset=utf-8";
}

// The media type alone, as the OpenAPI document names it.
std::string_view MediaType(std::string_view type) { return type.substr(0, type.find(';')); }

HttpResponse Response(std::string_view type, std::string_view text, const HttpRequest& request) {
  HttpResponse response;
  response.content_type = std::string(type);
  response.body = std::string(text);
  response.headers = {{"Content-Security-Policy", kPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"X-Frame-Options", "DENY"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cross-Origin-Resource-Policy", "same-origin"},
                      {"Cache-Control", "no-cache"},
                      {"Vary", "Accept"},
                      {"X-Request-Id", RequestIdOr(request.request_id)}};
  return response;
}

OtherRoute Row(std::string_view path, std::string_view summary, std::string_view reply_type,
               std::function<void(std::shared_ptr<HttpExchange>)> handle) {
  OtherRoute row{{"GET", path, summary}, nullptr, std::move(handle)};
  row.reply_type = reply_type;
  row.admit = [](const HttpRequest&) -> std::optional<HttpResponse> { return std::nullopt; };
  return row;
}

}  // namespace

std::vector<OtherRoute> PageRoutes(std::string version) {
  std::vector<OtherRoute> rows;
  for (const PageFile& file : PageFiles()) {
    if (file.path != kPage) {
      rows.push_back(Row(file.path, "A part of the page.", MediaType(TypeOf(file.path)),
                         [file](const std::shared_ptr<HttpExchange>& exchange) {
                           exchange->Respond(
                               Response(TypeOf(file.path), file.text, exchange->request()));
                         }));
      continue;
    }
    const std::string hello = absl::StrCat(
        "Tessera ", version, ": an OpenAI-compatible API (/openapi.json lists its endpoints, ",
        "/v1/models its model). A browser gets a page here.\n");
    rows.push_back(Row("/", "What serves here; a browser gets a page.", "text/plain",
                       [file, hello](const std::shared_ptr<HttpExchange>& exchange) {
                         const HttpRequest& request = exchange->request();
                         const bool browser = request.accept.find("text/html") != std::string::npos;
                         exchange->Respond(browser ? Response(TypeOf(file.path), file.text, request)
                                                   : Response("text/plain", hello, request));
                       }));
  }
  return rows;
}

}  // namespace tessera::coordinator
