// Which prefilling replica sends how many requests to which decoding one: the two-stage
// transportation program.
//
// Rates Z_ij of pairs: sum over j within what i prefills, over i within what j decodes, Z_ij within
// what the link carries as KV, all of them within what links between machines and uplinks carry,
// and no more than is offered. Maximised is sum Z_ij * D_ij, D_ij the share of requests of the pair
// that meet their objectives. Where D depends on load it is taken at the load that Z implies, and
// the program solved again until the shares settle. Source: ThunderServe (MLSys 2025), where the
// product of the shares X_i * Y_ij makes the program linear. Thread rule: pure functions;
// deterministic. Units: requests per second.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/search/linear_program.h"
#include "scheduler/search/loaded_links.h"
#include "scheduler/search/problem.h"

namespace tessera::scheduler {

struct Transport {
  struct Pair {
    int prefill = 0, decode = 0;    // indices into capacity
    double link_rate = kUnbounded;  // whose KV the link carries
    double attainment = 1;          // D_ij
    KvCodec codec = KvCodec::kRaw;
    LinkSpec link = {};  // the slowest that its KV takes
  };
  std::vector<double> capacity;  // of every replica, whatever its role
  std::vector<Pair> pairs;
  using SharedLink = LoadedLink;  // its users: pairs
  std::vector<SharedLink> shared;
  double offered = kUnbounded;  // of all requests that want to be served; the rest is shed
};

// Of the split ones among `replicas` (roles, stages and rates given). Shared are the links between
// two machines and the uplinks of machines and sites; what pipelines pass over them is not counted.
Transport MakeTransport(const PlacementProblem& problem, const LengthMoments& lengths,
                        const std::vector<const PlacedReplica*>& replicas);

// Rate of every pair.
absl::StatusOr<std::vector<double>> SolveTransport(const Transport& transport);

// D of a pair whose replicas prefill and decode at these rates.
using Attainment =
    std::function<double(const Transport::Pair& pair, double prefill_rate, double decode_rate)>;

struct AttainmentOptions {
  int most_rounds = 10;   // planning of ThunderServe as we build it
  double settled = 0.01;  // largest move of a share, of all that is served
};
struct AttainedTransport {
  std::vector<double> rates;
  double attained = 0;  // sum of Z * D at the rates' own loads
  int rounds = 0;
};
// The best of the rounds.
absl::StatusOr<AttainedTransport> SolveForAttainment(Transport transport,
                                                     const Attainment& attainment,
                                                     const AttainmentOptions& options = {});

}  // namespace tessera::scheduler
