// Who chooses the replica of a request: the daemon's router, or a rule to compare it with.
//
// Thread rule: one thread. Deterministic.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "scheduler/pair_router.h"
#include "scheduler/simulator/request.h"

namespace tessera::scheduler {

class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  // No route (-1) leaves the request waiting for a replica to become ready.
  virtual Route Choose(std::span<const ReplicaLoad> loads, const SimulatedRequest& request,
                       double now) = 0;
  // Asked before each choice: where the request stands in queues (SimulatedRequest::rank).
  virtual double Rank(const SimulatedRequest& request, double /*now*/) { return request.rank; }
};

// A pair of replicas (the same twice where one does both) and its part of a plan's traffic.
struct PairShare {
  int prefill = 0;
  int decode = 0;
  double share = 0;
  // As scheduler::PairLoad has them, of the links as they are described.
  double kv_seconds_per_token = 0;
  int layers = 1;
};
// The shares that hold from a time on; empty: none.
struct SharesSince {
  double seconds = 0;
  std::vector<PairShare> shares;
};

// scheduler/router among all that are ready.
std::unique_ptr<Dispatcher> MakeRouterDispatcher();
// As in the daemon that carries a plan out: scheduler/pair_router over the plan's pairs. Counts
// begin again with other shares and when a replica becomes ready.
std::unique_ptr<Dispatcher> MakePlanDispatcher(std::vector<SharesSince> shares);
// Ready replicas in turn; those with a role: prefill ones in turn, decode ones in turn.
std::unique_ptr<Dispatcher> MakeRoundRobinDispatcher();

// Each request goes to the pair that lags most behind its share, whatever the load; pairs with a
// lost replica are left out.
std::unique_ptr<Dispatcher> MakeSharesDispatcher(std::vector<PairShare> shares);

}  // namespace tessera::scheduler
