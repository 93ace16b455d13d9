#include "coordinator/deployment/admin_access.h"

#include "absl/strings/str_cat.h"
#include "proto/protocol.h"

namespace tessera::coordinator {

absl::Status AdminAccess::Check(std::string_view authorization) const {
  if (key.empty()) {
    if (open) return absl::OkStatus();
    return absl::PermissionDeniedError(
        "the cluster is shown and changed beyond loopback only with an admin key: start the "
        "coordinator with --admin-key-file");
  }
  if (BearerFits(authorization, {&key, 1})) return absl::OkStatus();
  const std::string where = place ? place() : "";
  return absl::UnauthenticatedError(
      absl::StrCat("the admin key is missing or wrong (authorization: Bearer KEY)",
                   where.empty() ? "" : "; it lies in ", where));
}

}  // namespace tessera::coordinator
