#include "coordinator/http_door/planning_http.h"

#include <google/protobuf/util/json_util.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "coordinator/api/front_door.h"
#include "coordinator/http_door/openai_call.h"
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

std::vector<RequestField> FieldsOf(const google::protobuf::Descriptor& request) {
  std::vector<RequestField> fields;
  for (int i = 0; i < request.field_count(); ++i)
    fields.push_back({.name = request.field(i)->name(), .kind = FieldKind::kDocument});
  return fields;
}

void RespondRunning(PlanningDesk& desk, HttpExchange& exchange) {
  RespondMessage(exchange, desk.Running(), RequestIdOr(exchange.request().request_id));
}

void Plan(PlanningDesk& desk, std::shared_ptr<HttpExchange> exchange) {
  const std::string request_id = RequestIdOr(exchange->request().request_id);
  v1::PlanRequest asked;
  if (ReadBody(*exchange, request_id, &asked))
    desk.Plan(std::move(asked), Responder<v1::PlanReply>(exchange, request_id));
}

void Apply(PlanningDesk& desk, std::shared_ptr<HttpExchange> exchange) {
  const std::string request_id = RequestIdOr(exchange->request().request_id);
  v1::ApplyPlanRequest asked;
  if (ReadBody(*exchange, request_id, &asked))
    desk.Apply(std::move(asked), Responder<v1::ApplyPlanReply>(exchange, request_id));
}

}  // namespace

std::vector<OtherRoute> PlanRoutes(PlanningDesk& desk, std::function<v1::GetClusterReply()> cluster,
                                   bool needs_key) {
  constexpr std::string_view kPlan = "/v1/plan";
  static const auto* const plan =
      new std::vector<RequestField>(FieldsOf(*v1::PlanRequest::descriptor()));
  static const auto* const apply =
      new std::vector<RequestField>(FieldsOf(*v1::ApplyPlanRequest::descriptor()));
  const auto admit = [&desk](const HttpRequest& header) -> std::optional<HttpResponse> {
    const absl::Status status = desk.CheckAdmin(header.authorization);
    if (status.ok()) return std::nullopt;
    return ErrorResponse(status, RequestIdOr(header.request_id));
  };
  using Exchange = std::shared_ptr<HttpExchange>;
  return {
      {{"GET", kPlan, "The plan in force; needs the admin key.", needs_key},
       admit,
       [&desk](const Exchange& exchange) { RespondRunning(desk, *exchange); }},
      {{"POST", kPlan, "Plans a deployment; needs the admin key.", needs_key, *plan},
       admit,
       [&desk](Exchange exchange) { Plan(desk, std::move(exchange)); }},
      {{"POST", "/v1/plan/apply", "Carries a plan out; needs the admin key.", needs_key, *apply},
       admit,
       [&desk](Exchange exchange) { Apply(desk, std::move(exchange)); }},
      {{"GET", "/v1/cluster", "Workers, replicas and links now; needs the admin key.", needs_key},
       admit,
       [cluster = std::move(cluster)](const Exchange& exchange) {
         RespondMessage(*exchange, cluster(), RequestIdOr(exchange->request().request_id));
       }}};
}

}  // namespace tessera::coordinator
