// Who chooses the replica of a request: the daemon's router, or a rule to compare it with.
//
// Thread rule: one thread. Deterministic.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "scheduler/router.h"
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

// scheduler/router, as in the daemon.
std::unique_ptr<Dispatcher> MakeRouterDispatcher();
// Ready replicas in turn; those with a role: prefill ones in turn, decode ones in turn.
std::unique_ptr<Dispatcher> MakeRoundRobinDispatcher();

// A plan's routing: pairs of replicas with their shares of the traffic. Each request goes to the
// pair that lags most behind its share; pairs with a lost replica are left out.
struct PairShare {
  int prefill = 0;
  int decode = 0;
  double share = 0;
};
std::unique_ptr<Dispatcher> MakeSharesDispatcher(std::vector<PairShare> shares);

}  // namespace tessera::scheduler
