// Sends spans to a collector, by OTLP/HTTP in JSON, on a thread of its own. What does not fit into
// its queue, and what the collector does not take, is dropped and counted: no request waits for it.
// Thread rule: thread-safe. Destruction sends what waits, within 5 s.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/http/json_post.h"
#include "coordinator/tracing/request_spans.h"

namespace tessera::coordinator {

struct OtlpEndpoint {
  HttpPeer peer;
  std::string path;  // to post to
};

// "http://HOST[:PORT][/PATH]", as OTEL_EXPORTER_OTLP_ENDPOINT has it: port 4318 by default, and
// /v1/traces is added to the path where it does not end so. InvalidArgument names what is expected.
absl::StatusOr<OtlpEndpoint> ParseOtlpEndpoint(const std::string& url);

struct SpanCounts {
  int64_t sent = 0, dropped = 0;
};

class OtlpExporter {
 public:
  // `version` is this program's. Nothing is sent before there are spans.
  static std::unique_ptr<OtlpExporter> Start(OtlpEndpoint endpoint, std::string version);
  virtual ~OtlpExporter() = default;
  virtual void Add(std::vector<Span> spans) = 0;
  virtual SpanCounts counts() const = 0;
};

}  // namespace tessera::coordinator
