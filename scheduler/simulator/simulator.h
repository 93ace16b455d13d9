// The simulator: requests, replicas and a dispatcher in; what became of every request out.
//
// Discrete events over replica.h, which drives the daemon's batcher; the dispatcher may be the
// daemon's router, fed by the same bookkeeping as the coordinator's. What happens at one moment
// happens in this order: changes and transfers, arrivals, ends of steps (by replica), starts of
// steps. Requests that finish or fail leave nothing behind: that requests, tokens and blocks add
// up is checked at the end, and after every plan where options.check_invariants.
//
// A request with unlike prefill and decode replicas goes as the daemon's would: room for its KV is
// reserved at the decode replica, the prompt is computed, the first token leaves from the prefill
// replica, KV is pushed, and decoding goes on. When a replica is lost, its requests are submitted
// to another with prompt and emitted tokens, up to max_attempts times; where none is ready they
// wait recovery_timeout_seconds.
// Thread rule: a simulation is one thread's; simulations are independent. Deterministic. Units:
// seconds since the start.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/simulator/dispatcher.h"
#include "scheduler/simulator/kv_network.h"
#include "scheduler/simulator/replica.h"
#include "scheduler/simulator/request.h"

namespace tessera::scheduler {

// Something that happens to a replica.
struct ScheduledChange {
  enum class Kind {
    kLose,     // its device is gone
    kRecover,  // it is there again, empty
    kSlow,     // its steps take `factor` times their time (a straggler); 1 ends that
    kAdd,      // a new replica, `added`
  };
  double at_seconds = 0;
  Kind kind = Kind::kLose;
  int replica = 0;
  double factor = 1;
  std::optional<ReplicaSetup> added;
};

// Asked after each change and each missed limit, and answers with changes of its own (now or
// later): re-planning.
using ReplanHook =
    std::function<std::vector<ScheduledChange>(double now, std::span<const ReplicaLoad> loads)>;

// Requests that come because others finished, such as the next calls of a workflow.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  // `request` is an index into the result's requests. Appends requests that arrive at `now` or
  // later.
  virtual void OnEnd(int32_t request, const SimulatedRequest& what, const RequestOutcome& outcome,
                     std::vector<SimulatedRequest>* arrivals) = 0;
};

// Sees tokens as they come, for tests; within a moment in no particular order between replicas.
class TokenObserver {
 public:
  virtual ~TokenObserver() = default;
  virtual void OnToken(int replica, int32_t request, double now) = 0;
};

// Service levels, after a request's arrival; 0: none. The moment at which one is missed is an
// event: it is noted in the outcome, and `replan` is asked. (Time per token is a mean over a whole
// request, so it is missed at its end only.)
struct TokenLimits {
  double first_seconds = 0;
  double last_seconds = 0;
};

struct SimulationSetup {
  std::vector<ReplicaSetup> replicas;
  std::vector<SimulatedRequest> requests;  // by arrival
  std::vector<ScheduledChange> changes;
  // What KV and activations pass; without routes KV takes no time, without hop_links (replica.h)
  // activations take what the cost table says.
  TransferSetup transfers;
  ReplanHook replan;                // may be empty
  RequestSource* source = nullptr;  // borrowed; may be null
  TokenObserver* tokens = nullptr;  // borrowed; may be null
  std::vector<TokenLimits> limits;  // by request_class; classes beyond them have none
  int max_attempts = 4;
  double recovery_timeout_seconds = 30;
  bool leaps = true;
  bool check_invariants = false;
  double sample_seconds = 0;   // between load samples; 0: none
  std::function<bool()> stop;  // asked now and then, true ends the simulation; may be empty
};

struct LoadSample {
  double seconds = 0;
  int replica = 0;
  int64_t running = 0;
  int64_t waiting = 0;
  double kv_used = 0;  // of its blocks, 0..1
};

struct SimulationResult {
  std::vector<SimulatedRequest> requests;
  std::vector<RequestOutcome> outcomes;  // one per request
  std::vector<ReplicaSetup> replicas;    // those added included
  std::vector<ReplicaCounters> counters;
  std::vector<LoadSample> samples;
  std::vector<SharedLink> links;   // of the transfers
  std::vector<double> link_bytes;  // that each carried, activations included
  double end_seconds = 0;          // of the last event
  // Time of the last arrival; the end where that was not known before, or all came at once.
  double coming_until_seconds = 0;
};

// InvalidArgument for limits below 1, no replica, empty requests, or requests out of order.
absl::Status CheckSetup(const SimulationSetup& setup);

// InvalidArgument for a setup that cannot be; Internal, naming the replica, if something does not
// add up; Cancelled where it was stopped.
absl::StatusOr<SimulationResult> Simulate(const SimulationSetup& setup, Dispatcher* dispatcher);

}  // namespace tessera::scheduler
