#include "coordinator/api/planning_http.h"

#include <google/protobuf/util/json_util.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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

// Answers with what a call of the desk says.
template <typename Reply>
auto Responder(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
  return [exchange = std::move(exchange), request_id](absl::StatusOr<Reply> reply) {
    if (reply.ok()) {
      RespondMessage(*exchange, *reply, request_id);
    } else {
      RespondError(*exchange, reply.status(), request_id);
    }
  };
}

// False: the body is none, which is answered.
bool ReadBody(HttpExchange& exchange, const std::string& request_id,
              google::protobuf::Message* message) {
  const auto counted = std::exchange(exchange.request().body_share, nullptr);
  const std::string body = std::exchange(exchange.request().body, std::string());
  const absl::Status status = ReadDocument(body, "request", message);
  if (!status.ok()) RespondError(exchange, status, request_id);
  return status.ok();
}

HttpResponse NotAllowed(const std::string& path, const std::string& methods,
                        const std::string& request_id) {
  HttpResponse response;
  response.status = 405;
  response.headers = {{"Allow", methods}, {"X-Request-Id", request_id}};
  response.body = absl::StrCat(R"({"error":{"message":")", path, " takes ",
                               absl::StrReplaceAll(methods, {{", ", " and "}}),
                               R"(","type":"invalid_request_error","param":null,"code":null}})");
  return response;
}

std::vector<RequestField> FieldsOf(const google::protobuf::Descriptor& request) {
  std::vector<RequestField> fields;
  for (int i = 0; i < request.field_count(); ++i)
    fields.push_back({.name = request.field(i)->name(), .kind = FieldKind::kDocument});
  return fields;
}

}  // namespace

std::vector<ApiPath> PlanPaths(bool needs_key) {
  static const auto* const plan =
      new std::vector<RequestField>(FieldsOf(*v1::PlanRequest::descriptor()));
  static const auto* const apply =
      new std::vector<RequestField>(FieldsOf(*v1::ApplyPlanRequest::descriptor()));
  return {{"POST", kPlanPath, "Plans a deployment; needs the admin key.", needs_key, *plan},
          {"GET", kPlanPath, "The plan in force; needs the admin key.", needs_key},
          {"POST", kApplyPlanPath, "Carries a plan out; needs the admin key.", needs_key, *apply}};
}

std::optional<HttpResponse> AdmitPlanRequest(const PlanningDesk& desk, const HttpRequest& header) {
  const std::string request_id = RequestIdOr(header.request_id);
  if (absl::Status s = desk.CheckAdmin(header.authorization); !s.ok())
    return ErrorResponse(s, request_id);
  const bool reads = header.method == "GET" || header.method == "HEAD";
  if (header.method == "POST" || (reads && header.path == kPlanPath)) return std::nullopt;
  return NotAllowed(header.path, header.path == kPlanPath ? "GET, POST" : "POST", request_id);
}

void HandlePlanRequest(PlanningDesk& desk, std::shared_ptr<HttpExchange> exchange) {
  const std::string request_id = RequestIdOr(exchange->request().request_id);
  if (exchange->request().method != "POST") {
    RespondMessage(*exchange, desk.Running(), request_id);
    return;
  }
  v1::PlanRequest asked;
  if (ReadBody(*exchange, request_id, &asked))
    desk.Plan(std::move(asked), Responder<v1::PlanReply>(exchange, request_id));
}

void HandleApplyPlan(PlanningDesk& desk, std::shared_ptr<HttpExchange> exchange) {
  const std::string request_id = RequestIdOr(exchange->request().request_id);
  v1::ApplyPlanRequest asked;
  if (ReadBody(*exchange, request_id, &asked))
    desk.Apply(std::move(asked), Responder<v1::ApplyPlanReply>(exchange, request_id));
}

}  // namespace tessera::coordinator
