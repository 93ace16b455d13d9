#include "coordinator/http_door/http_admission.h"

#include <memory>
#include <optional>
#include <utility>

#include "coordinator/api/front_door.h"
#include "coordinator/http/cors.h"
#include "coordinator/http_door/openai_call.h"

namespace tessera::coordinator {
namespace {

HttpResponse Refused(const BrowserGuard::Refusal& refusal, const HttpRequest& header) {
  const absl::Status status = refusal.status == 403 ? absl::PermissionDeniedError(refusal.why)
                                                    : absl::InvalidArgumentError(refusal.why);
  HttpResponse response = ErrorResponse(status, RequestIdOr(header.request_id));
  response.status = refusal.status;
  return response;
}

}  // namespace

HttpAdmit MakeHttpAdmission(BrowserGuardOptions options, HttpAdmit keys) {
  const auto guard = std::make_shared<const BrowserGuard>(options);
  const HttpAdmit cors = WithCors(options.allowed_origins, std::move(keys));
  return [guard, cors](const HttpRequest& header) {
    const std::optional<BrowserGuard::Refusal> refusal = guard->Check(header);
    return refusal.has_value() ? HttpAdmission{Refused(*refusal, header), {}} : cors(header);
  };
}

}  // namespace tessera::coordinator
