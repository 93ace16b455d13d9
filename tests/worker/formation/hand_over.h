// Prompts that one replica computes and another one continues, as a coordinator hands them over.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/formation/replica_comparison.h"
#include "tests/worker/formation/replica_harness.h"

namespace tessera::worker {

// Of the span of a position's logits, in float32, from the order of sums alone.
inline constexpr double kTolerance = 1e-4;
// The same where values may have been rounded to another code.
inline constexpr double kCodecTolerance = 0.01;

// What one replica answers alone.
Answers Run(const std::string& folder, const ReplicaOptions& options,
            const std::vector<v1::Submit>& requests);

// Whether every block of the pool is free, soon.
bool HoldsNothing(const PlannedReplica& replica);

// Requests on their way from one replica to another; borrows both.
class PlayedHandOver {
 public:
  PlayedHandOver(PlannedReplica& prefill, PlannedReplica& decode, std::string way)
      : prefill_(prefill), decode_(decode), way_(std::move(way)) {}

  // Reserves room for all of them, and has their prompts computed.
  void Begin(const std::vector<v1::Submit>& requests);
  // Has the other replica go on with what the first one answered.
  void GoOn(const Answers& first);
  // All answers, joined as their readers hear them.
  Answers Join(const Answers& first, const Answers& rest) const;

 private:
  PlannedReplica& prefill_;
  PlannedReplica& decode_;
  const std::string way_;  // that the KV is said to go
  std::vector<v1::Submit> requests_;
  std::map<uint64_t, std::string> tickets_;
};

struct Split {
  PlannedReplica prefill, decode;
  std::string way = "tcp";

  // All requests at once.
  Answers Run(const std::vector<v1::Submit>& requests) {
    PlayedHandOver hand_over(prefill, decode, way);
    hand_over.Begin(requests);
    const Answers first = prefill.WaitAll();
    hand_over.GoOn(first);
    return hand_over.Join(first, decode.WaitAll());
  }
};

}  // namespace tessera::worker
