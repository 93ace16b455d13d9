// Which replicas compute prompts, which go on from them, and which of these a request goes to: of
// the pairs that a plan has for a prefill replica the one that is furthest below its share.
//
// A pair whose KV did not arrive is left out for a while: 1 s, then twice as long each time, 60 s
// at most, until KV arrives again.
//
// Thread rule: none of its own; guard it. Deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/plan.pb.h"
#include "proto/worker.pb.h"

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

class HandOverPairs {
 public:
  HandOverPairs() = default;  // every replica does both
  explicit HandOverPairs(const v1::DeploymentPlan& plan);

  // Of the same plan.
  bool SamePairs(const HandOverPairs& other) const { return shares_ == other.shares_; }

  bool empty() const { return shares_.empty(); }
  // The plan sends prompts there; without a plan that says otherwise: everywhere.
  bool Prefills(const std::string& replica) const;
  bool Decodes(const std::string& replica) const;
  // Who goes on from what `prefill` computes, of those that are ready; `prefill` itself where the
  // plan says so, or none of the others is. Counts the choice.
  std::string Choose(const std::string& prefill, const std::set<std::string>& ready,
                     double now_seconds);

  // In which the plan has KV travel between the two.
  v1::KvCodec CodecOf(const std::string& prefill, const std::string& decode) const;

  void NoteArrived(const std::string& prefill, const std::string& decode,
                   const v1::KvTransfer& transfer);
  // Returns how long the pair is left out.
  double NoteFailed(const std::string& prefill, const std::string& decode, double now_seconds);
  std::vector<HandOverRecord> Records(double now_seconds) const;

 private:
  struct Pair {
    double share = 0;
    v1::KvCodec codec = v1::KV_CODEC_RAW;
    double chosen = 0;
    HandOverRecord record;
    int failures_in_a_row = 0;
    double not_before_seconds = 0;

    bool operator==(const Pair& other) const {
      return share == other.share && codec == other.codec;
    }
  };

  std::map<std::string, std::map<std::string, Pair>> shares_;  // prefill, decode; empty: no pairs
};

}  // namespace tessera::coordinator
