// Stands between the front doors and the request flow: refuses what is beyond a key's limits, and
// gives each request its turn among those of other clients, and by its deadline (deadline_turns.h).
//
// Where several keys have requests open, none may have more waiting than its part of the queues, so
// that one that floods them leaves room for the others.
//
// Thread rule: thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/fairness/client_limits.h"
#include "coordinator/flow/generation.h"

namespace tessera::coordinator {

struct ClientPolicy {
  double weight = 1;  // > 0; its part of the replicas where others want them too
  ClientLimits limits;
};

struct FairServiceOptions {
  // By GenerationRequest::client; others: the default.
  std::map<std::string, ClientPolicy> policies = {};
  std::function<int64_t()> queue_places;  // of all replicas that are ready
  std::function<double()> now_seconds;    // monotonic
  // Seconds that a request takes once it has begun, by its tokens of prompt and answer; 0: not
  // known. May be empty.
  std::function<double(double prompt_tokens, double answer_tokens)> expected_seconds = {};
};

// Since the start.
struct ClientUse {
  std::string client;
  int64_t waiting = 0;  // requests that no replica has begun, now
  int64_t requests = 0, refused = 0;
  double tokens = 0;  // of prompts, what the prefix cache held left out, and answers
  int64_t with_deadline = 0, late = 0;  // requests that ended, and of these behind their deadlines
};

class FairService : public GenerationService {
 public:
  // `next` outlives it and what it started. Start's errors beside those of `next`:
  // RESOURCE_EXHAUSTED with when to try again (retry_after.h).
  static std::unique_ptr<FairService> Make(FairServiceOptions options, GenerationService& next);
  // For each client that has asked for something.
  virtual std::vector<ClientUse> uses() const = 0;
  // Headers of what is left to a client (client_limits.h).
  virtual std::vector<std::pair<std::string, std::string>> LimitHeaders(
      const std::string& client) = 0;
};

}  // namespace tessera::coordinator
