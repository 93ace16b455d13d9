// What Prometheus' clients usually say about their own process: CPU time, memory, open files and
// the time of its start. Read from /proc at each collection; Linux only.
//
// Thread rule: thread-safe.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <vector>

namespace tessera::coordinator {

class ProcessMetrics final : public prometheus::Collectable {
 public:
  // What cannot be read is left out.
  std::vector<prometheus::MetricFamily> Collect() const override;
};

}  // namespace tessera::coordinator
