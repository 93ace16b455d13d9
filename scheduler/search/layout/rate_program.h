// Which prefilling replica sends how many requests to which decoding one: the two-stage
// transportation program.
//
// Rates Z_ij of pairs: sum over j within what i prefills, over i within what j decodes, Z_ij within
// what the link carries as KV, and all of them within what links between machines and uplinks
// carry. Maximised is their sum. Source: ThunderServe (MLSys 2025), where the product of the shares
// X_i * Y_ij makes the program linear; it weighs every pair by the part of its requests that meet
// their objectives. Here that part is 1: for goodput capacities are the rates at which enough
// requests of every pair do (goodput.h), as for all searches. Thread rule: pure functions;
// deterministic. Units: requests per second.
#pragma once

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/search/layout/loaded_links.h"
#include "scheduler/search/layout/problem.h"
#include "scheduler/search/math/linear_program.h"

namespace tessera::scheduler {

struct RateProgram {
  struct Pair {
    int prefill = 0, decode = 0;    // indices into capacity
    double link_rate = kUnbounded;  // whose KV the link carries
    KvCodec codec = KvCodec::kRaw;
    LinkSpec link = {};  // the slowest that its KV takes
  };
  std::vector<double> capacity;  // of every replica, whatever its role
  std::vector<Pair> pairs;
  using SharedLink = LoadedLink;  // its users: pairs
  std::vector<SharedLink> shared;
};

// The transport of the split ones among `replicas` (roles, stages and rates given). Shared are the
// links between two machines and the uplinks of machines and sites; what pipelines pass over them
// is not counted.
RateProgram MakeRateProgram(const PlacementProblem& problem, const LengthMoments& lengths,
                            const std::vector<const PlacedReplica*>& replicas);

// Rate of every pair.
absl::StatusOr<std::vector<double>> SolveTransport(const RateProgram& transport);

// Their sum, without the program where links do not bind; 0 where it has no solution.
double ServedBy(const RateProgram& transport);

}  // namespace tessera::scheduler
