// Which part of the requests of each class is within its limits in a simulation, and the largest
// rate at which enough are: what cost/attainment predicts, seen.
//
// The requests that came in the first tenth of the time are left out: they met empty replicas. At
// every rate the same requests are drawn in the same order, only closer together, and just as many
// per second as the rate says. Thread rule: pure functions, deterministic. Units: seconds, requests
// per second. Errors: those of the simulator.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/cost/attainment.h"
#include "scheduler/simulator/plan_replicas.h"
#include "scheduler/simulator/simulator.h"

namespace tessera::scheduler {

// Borrows all that it names.
struct GoodputQuestion {
  const PlanReplicas* replicas = nullptr;
  const std::vector<RequestClass>* classes = nullptr;
  double arrival_variation = 1;  // of the gaps between requests
  int64_t requests = 4000;
  uint64_t seed = 1;
  std::function<bool()> stop = nullptr;  // as SimulationSetup's
};

// The daemon's router within the plan's shares.
absl::StatusOr<SimulationResult> SimulateAt(const GoodputQuestion& question, double rate);

// By class; of a class without requests 1. A request that failed is within no limit.
std::vector<double> AttainedByClass(const SimulationResult& result,
                                    const std::vector<RequestClass>& classes);

// The largest rate up to `most` that is served and at which every class attains what it asks for,
// to a hundredth of `most`; 0: not even at `least`, where that is above 0, else not at a sixteenth
// of `most`. One simulation tells that `least` is too much.
absl::StatusOr<double> SimulatedGoodputUpTo(const GoodputQuestion& question, double least,
                                            double most);

}  // namespace tessera::scheduler
