#include "coordinator/api/planning_http.h"

#include <google/protobuf/util/json_util.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/api/front_door.h"
#include "coordinator/api/openai_call.h"
#include "proto/document.h"

namespace tessera::coordinator {
namespace {

void RespondMessage(HttpExchange& exchange, const google::protobuf::Message& message,
                    const std::string& request_id) {
  google::protobuf::util::JsonPrintOptions print;
  print.preserve_proto_field_names = true;
  HttpResponse response;
  response.headers = {{"X-Request-Id", request_id}};
  const auto status = google::protobuf::util::MessageToJsonString(message, &response.body, print);
  if (status.ok()) {
    exchange.Respond(std::move(response));
  } else {
    RespondError(exchange, absl::InternalError(status.ToString()), request_id);
  }
}

void Plan(PlanningDesk& desk, std::shared_ptr<HttpExchange> exchange,
          const std::string& request_id) {
  const std::string body = std::exchange(exchange->request().body, std::string());
  v1::PlanRequest request;
  if (absl::Status s = ReadDocument(body, "request", &request); !s.ok()) {
    RespondError(*exchange, s, request_id);
    return;
  }
  desk.Plan(std::move(request),
            [exchange = std::move(exchange), request_id](absl::StatusOr<v1::PlanReply> reply) {
              if (reply.ok()) {
                RespondMessage(*exchange, *reply, request_id);
              } else {
                RespondError(*exchange, reply.status(), request_id);
              }
            });
}

}  // namespace

std::vector<ApiPath> PlanPaths(bool needs_key) {
  static const std::vector<RequestField>* const fields = [] {
    auto* made = new std::vector<RequestField>;
    const google::protobuf::Descriptor& request = *v1::PlanRequest::descriptor();
    for (int i = 0; i < request.field_count(); ++i)
      made->push_back({.name = request.field(i)->name(), .kind = FieldKind::kDocument});
    return made;
  }();
  return {{"POST", kPlanPath, "Plans a deployment; needs the admin key.", needs_key, *fields},
          {"GET", kPlanPath, "The plan in force; needs the admin key.", needs_key}};
}

void HandlePlanRequest(PlanningDesk& desk, std::shared_ptr<HttpExchange> exchange) {
  const HttpRequest& request = exchange->request();
  const std::string request_id = RequestIdOr(request.request_id);
  if (absl::Status s = desk.CheckAdmin(request.authorization); !s.ok()) {
    RespondError(*exchange, s, request_id);
  } else if (request.method == "POST") {
    Plan(desk, std::move(exchange), request_id);
  } else if (request.method == "GET" || request.method == "HEAD") {
    RespondMessage(*exchange, desk.Running(), request_id);
  } else {
    HttpResponse response;
    response.status = 405;
    response.headers = {{"Allow", "GET, POST"}, {"X-Request-Id", request_id}};
    response.body =
        R"({"error":{"message":"/v1/plan takes GET and POST","type":"invalid_request_error","param":null,"code":null}})";
    exchange->Respond(std::move(response));
  }
}

}  // namespace tessera::coordinator
