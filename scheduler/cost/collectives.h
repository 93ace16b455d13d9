// Seconds of the collectives of a stage, with the algorithm chosen by predicted cost.
//
// Model (GenModel, renamed): t = A*alpha + V/beta + R*gamma + Q*delta + max(w - w_t, 0)*V*epsilon,
// with A rounds, V bytes sent per link, R bytes reduced, Q memory bytes touched, w fan-in. Over
// several tiers (devices of a machine, machines of a rack, ...) the choice is made per tier, bottom
// up, as GenTree does: a reduce-scatter and all-gather inside around an all-reduce of the shards
// outside, or one flat algorithm over all ranks on the slowest link. Thread rule: pure functions.
// Units: bytes, seconds. Cost: O(tiers).
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "scheduler/cost/hardware.h"

namespace tessera::scheduler {

enum class AllReduceKind {
  kNone,     // one rank
  kOneShot,  // everybody sends everything to everybody
  kRing,
  kHalvingDoubling,  // ranks are a power of two
  kTwoPhase,         // direct reduce-scatter, direct all-gather
  kHierarchical,     // direct, ranks = m1 * m2
  kGridRing,         // rings along both sides of a grid, ranks = a * b; pays where incast does
  kTiered,           // by tier, see above
};
std::string_view Name(AllReduceKind kind);

// What a byte costs on the devices that reduce it, in seconds per byte.
struct ReduceCost {
  double reduce_seconds_per_byte = 0;  // gamma
  double memory_seconds_per_byte = 0;  // delta
};

// How the ranks of a stage are joined, innermost tier first: `fan` ranks (or groups of the tier
// below) on `link`. Ranks in all = the product of the fans. `shared`: the groups' members share one
// link to this tier (a machine's uplink), so parallel shards divide its bandwidth.
struct CommunicatorTier {
  int fan = 1;
  LinkSpec link;
  bool shared = false;

  bool operator==(const CommunicatorTier&) const = default;
};
// Mostly of one tier, in which case it owns no memory: planning makes millions of them.
using Communicator = absl::InlinedVector<CommunicatorTier, 1>;

int Ranks(const Communicator& communicator);

struct CollectiveCost {
  double seconds = 0;
  AllReduceKind kind = AllReduceKind::kNone;
};

// One algorithm among `ranks` equal ranks on one link; infinite where it does not apply.
// kHierarchical and kGridRing take the best factorisation of ranks, both factors at least 2.
double AllReduceSecondsBy(AllReduceKind kind, int ranks, double bytes, const LinkSpec& link,
                          const ReduceCost& cost);

// The cheapest for this size.
CollectiveCost AllReduce(const Communicator& communicator, double bytes, const ReduceCost& cost);

// `bytes` at rank 0 to all ranks: direct, by a tree, or scatter and all-gather, whichever is
// cheapest.
double BroadcastSeconds(const Communicator& communicator, double bytes);

// Every rank's share of `bytes` (bytes / ranks each) to rank 0, over the slowest tier.
double GatherSeconds(const Communicator& communicator, double bytes);

// One message.
inline double TransferSeconds(const LinkSpec& link, double bytes) {
  return link.latency_seconds + bytes / link.bytes_per_second;
}

}  // namespace tessera::scheduler
