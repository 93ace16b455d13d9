#include "coordinator/spare/spare_door.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/http/http_errors.h"

namespace tessera::coordinator {
namespace {

HttpResponse Answer(const HttpRequest& header, const std::string& leader) {
  HttpResponse response;
  if (header.path == "/livez") {
    response.body = R"({"status":"spare"})";
    return response;
  }
  response = PlainError(503, leader.empty()
                                 ? "this coordinator is a spare, and none leads yet: try again"
                                 : absl::StrCat("this coordinator is a spare: ", leader, " leads"));
  if (!leader.empty()) response.headers.emplace_back("x-tessera-leader", leader);
  return response;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> OpenSpareDoor(HttpServerOptions options,
                                                          std::function<std::string()> leader) {
  // By the header alone: nobody's body is read.
  options.admit = [leader = std::move(leader)](const HttpRequest& header) {
    return HttpAdmission{Answer(header, leader()), {}};
  };
  return HttpServer::Start(options, [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Respond(PlainError(503, "this coordinator is a spare"));
  });
}

}  // namespace tessera::coordinator
