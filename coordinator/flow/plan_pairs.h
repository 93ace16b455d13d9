// The pairs of replicas that a plan sends requests through, by the names of replicas that come and
// go: their shares, what moving KV between them took, and which are left out. Which of them serves
// a request is scheduler/pair_router's to say.
//
// A pair whose KV did not arrive is left out for a while: 1 s, then twice as long each time, 60 s
// at most, until KV arrives again.
//
// Thread rule: none of its own; guard it. Deterministic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/plan.pb.h"
#include "proto/worker.pb.h"
#include "scheduler/pair_router.h"

namespace tessera::coordinator {

// What came of one pair's hand-overs.
struct HandOverRecord {
  std::string prefill, decode;  // replicas
  uint64_t prompts = 0;         // whose KV arrived
  uint64_t bytes = 0;           // of these
  double seconds = 0;           // that these took, added up
  std::string transport;        // of the newest one
  uint64_t failures = 0;        // prompts whose KV did not arrive
  double back_off_seconds = 0;  // until the pair is tried again; 0: it is in use
};

class PlanPairs {
 public:
  PlanPairs() = default;  // no plan: requests go by load alone
  explicit PlanPairs(const v1::DeploymentPlan& plan);

  // Whether the pairs are of the same plan, whatever came of them.
  bool SamePairs(const PlanPairs& other) const;

  // For the router, in the plan's order. `replicas`: names in the order of its snapshot, sorted.
  std::vector<scheduler::PairLoad> Snapshot(const std::vector<std::string>& replicas,
                                            double now_seconds) const;
  // A request went to a pair of that snapshot (scheduler::Route::pair).
  void NoteRouted(int pair);
  // Counts from zero, after a replica has come: the others do not wait until it has caught up.
  void RestartCounts();

  // In which the plan has KV travel between the two.
  v1::KvCodec CodecOf(const std::string& prefill, const std::string& decode) const;

  // `tokens`: of the prompt, that were sent. Returns the measured rate in bytes per second, or what
  // it is at least where prefill hid all of the way, where the pair had not used this transport
  // before; else 0.
  double NoteArrived(const std::string& prefill, const std::string& decode, int64_t tokens,
                     const v1::KvTransfer& transfer);
  // Returns how long the pair is left out.
  double NoteFailed(const std::string& prefill, const std::string& decode, double now_seconds);
  // The records of the pairs that hand over.
  std::vector<HandOverRecord> Records(double now_seconds) const;

 private:
  struct Pair {
    HandOverRecord record;
    v1::KvCodec codec = v1::KV_CODEC_RAW;
    int failures_in_a_row = 0;
    double not_before_seconds = 0;
  };

  // -1: the plan has no such pair.
  int Find(const std::string& prefill, const std::string& decode) const;

  std::vector<Pair> pairs_;                 // in the plan's order
  std::vector<scheduler::PairLoad> loads_;  // of these, without the snapshot's indices
};

}  // namespace tessera::coordinator
