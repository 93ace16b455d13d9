// Stands between the front doors and what serves them: each generation that ends becomes spans for
// a collector. A client's traceparent says to which trace they belong, and whether it is recorded;
// a request without one begins a trace.
//
// Thread rule: thread-safe, but for Before.
#pragma once

#include <prometheus/metric_family.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/flow/generation.h"

namespace tessera::coordinator {

struct TracingOptions {
  std::string endpoint;  // of a collector (otlp_exporter.h); empty: nothing is traced
  std::string version;   // of this program
};

class Tracing {
 public:
  // InvalidArgument for an endpoint that is none.
  static absl::StatusOr<std::unique_ptr<Tracing>> Start(TracingOptions options);
  virtual ~Tracing() = default;
  // A service that traces what `next` does for the model of that name: `next` itself where nothing
  // is traced. Lives as long as the Tracing; `next` outlives its calls.
  virtual GenerationService& Before(GenerationService& next, const std::string& model) = 0;
  // What /metrics says of the spans; none where nothing is traced.
  virtual std::vector<prometheus::MetricFamily> families() const = 0;
};

}  // namespace tessera::coordinator
