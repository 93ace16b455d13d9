// The most requests that pass from source over prefilling replicas, KV links and decoding replicas
// to the sink: a maximum flow (push-relabel, LEMON's Preflow).
//
// The same question as rate_program.h without shared links; the flow says besides who is saturated.
// Source: HexGen-2 (ICLR 2025). Thread rule: pure function, deterministic. Units: requests per
// second; inside whole micro-requests per second, so that flows are exact.
#pragma once

#include <vector>

#include "scheduler/search/layout/rate_program.h"

namespace tessera::scheduler {

struct PhaseFlow {
  double requests_per_second = 0;
  std::vector<double> through;  // by replica
  std::vector<double> pairs;    // by pair of the transport: the routing shares
};
PhaseFlow LargestPhaseFlow(const RateProgram& transport);

}  // namespace tessera::scheduler
