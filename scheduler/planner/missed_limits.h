// Which limits of the workload a plan misses, of each kind the one that is missed by the largest
// factor. Thread rule: one thread per object. Units: seconds.
#pragma once

#include <vector>

#include "proto/plan_facts.pb.h"
#include "scheduler/cost/attainment.h"

namespace tessera::scheduler {

class MissedLimits {
 public:
  // Does nothing where there is no such limit (not above 0, or infinite) or it is kept.
  void Add(v1::LatencyLimit limit, double limit_seconds, double seconds);

  // By kind: TTFT, TPOT, end to end.
  std::vector<v1::MissedLimit> all() const;

 private:
  std::vector<v1::MissedLimit> missed_;
};

// By what a missed limit was missed; infinite: some requests wait without end.
double MissedBy(const v1::MissedLimit& missed);

}  // namespace tessera::scheduler
