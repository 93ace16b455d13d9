// The HTTP front door: OpenAI-compatible endpoints over http_server and a GenerationService.
//
// Its routes are kRoutes in http_api.cc, with the fields of each, and /openapi.json lists them;
// those of others come as other_routes, which serving.cc puts together.
//
// Large bodies are parsed, rendered and tokenised on a thread of its own, so that no stream waits
// for them. Thread rule: Handle may be called from any thread; it never blocks. All that it borrows
// must outlive it, and the HttpServer must be stopped before it is destroyed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/api/front_door.h"
#include "coordinator/api/key_ring.h"
#include "coordinator/api/served_models.h"
#include "coordinator/flow/generation.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http/large_bodies.h"
#include "coordinator/http_door/openapi.h"

namespace tessera::coordinator {

// A row of others in the table of routes. Rows of one path stand together, and have one `admit`.
struct OtherRoute : ApiPath {
  // By its header: nullopt, or the error to answer with. Asked before the method is looked at.
  std::function<std::optional<HttpResponse>(const HttpRequest&)> admit;
  std::function<void(std::shared_ptr<HttpExchange>)> handle;
};

struct HttpApiOptions {
  KeyRing keys;
  int ping_interval_ticks = 10;             // Ticks a stream may be silent before it gets a comment
  LargeBodiesOptions large_bodies;          // read off the I/O threads; one too many is 503
  std::function<absl::Status()> readiness;  // OK: serving; else why not
  // Replicas that are ready and stuck, in words; may be empty, may not be set.
  std::function<std::vector<std::string>()> stalled;
  // The same of planned replicas that take no requests.
  std::function<std::vector<std::string>()> waiting;
  std::function<int64_t()> load;  // requests that run or wait
  // Called for each request to generate that the door refuses itself.
  std::function<void(absl::StatusCode)> refused;
  std::vector<OtherRoute> other_routes;
  std::string version;                        // of this build
  std::function<std::string()> metrics;       // Prometheus text
  std::function<int64_t()> now_unix_seconds;  // time of day: for `created` and templates
};

class HttpApi {
 public:
  static std::unique_ptr<HttpApi> Make(HttpApiOptions options, ServedModels models);
  virtual ~HttpApi() = default;
  // Whether the path is an endpoint that generates, whose refusals are counted.
  static bool Generates(std::string_view path);
  // Whether a request may go on to Handle, by its header: nullopt, or the error to answer with (no
  // such endpoint, another method, no key). Counts refusals.
  virtual std::optional<HttpResponse> Admit(const HttpRequest& header) const = 0;
  // Answers a request that was admitted.
  virtual void Handle(std::shared_ptr<HttpExchange> exchange) = 0;
  // Sends comments to streams that have been silent; the owner calls it about once a second.
  virtual void Tick() = 0;
};

}  // namespace tessera::coordinator
