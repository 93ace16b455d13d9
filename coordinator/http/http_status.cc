#include "coordinator/http/http_status.h"

namespace tessera::coordinator {

HttpError ToHttpError(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange: return {400, "invalid_request_error"};
    case absl::StatusCode::kUnauthenticated: return {401, "authentication_error"};
    case absl::StatusCode::kPermissionDenied: return {403, "permission_error"};
    case absl::StatusCode::kNotFound: return {404, "not_found_error"};
    case absl::StatusCode::kResourceExhausted: return {429, "rate_limit_error"};
    case absl::StatusCode::kUnimplemented: return {501, "server_error"};
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted: return {503, "server_error"};
    case absl::StatusCode::kDeadlineExceeded: return {504, "server_error"};
    default: return {500, "server_error"};
  }
}

}  // namespace tessera::coordinator
