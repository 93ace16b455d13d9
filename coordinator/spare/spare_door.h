// What clients get at the HTTP port of a spare: 503 with Retry-After, and who leads.
// Thread rule: as HttpServer.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/http/http_server.h"

namespace tessera::coordinator {

// `leader`: URL of whoever leads, empty where nobody is known to; called on I/O threads. /livez is
// answered 200: a spare lives, and is not ready. Errors as HttpServer::Start.
absl::StatusOr<std::unique_ptr<HttpServer>> OpenSpareDoor(HttpServerOptions options,
                                                          std::function<std::string()> leader);

}  // namespace tessera::coordinator
