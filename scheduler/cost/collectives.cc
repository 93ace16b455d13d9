#include "scheduler/cost/collectives.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tessera::scheduler {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The columns of GenModel's table.
struct Terms {
  double rounds = 0;
  double sent_bytes = 0;
  double reduced_bytes = 0;
  double touched_bytes = 0;
  double fan_in = 0;
};

double Seconds(const Terms& t, const LinkSpec& link, const ReduceCost& cost) {
  const double excess = std::max(t.fan_in - link.incast_threshold, 0.0);
  return t.rounds * link.latency_seconds + t.sent_bytes / link.bytes_per_second +
         t.reduced_bytes * cost.reduce_seconds_per_byte +
         t.touched_bytes * cost.memory_seconds_per_byte +
         excess * t.sent_bytes * link.incast_seconds_per_byte;
}

bool IsPowerOfTwo(int n) { return n > 0 && (n & (n - 1)) == 0; }

double HierarchicalSeconds(int ranks, double bytes, const LinkSpec& link, const ReduceCost& cost) {
  double best = kNever;
  for (int inner = 2; inner <= ranks / 2; ++inner) {
    if (ranks % inner != 0) continue;
    const double m1 = inner, m2 = ranks / inner, n = ranks;
    const Terms terms = {4, 2 * (n - 1) * bytes / n, (n - 1) * bytes / n,
                         ((m1 + 1) / m1 + (m2 + 1) / (m1 * m2)) * bytes, std::max(m1, m2)};
    best = std::min(best, Seconds(terms, link, cost));
  }
  return best;
}

// Rounds of rings among a and then among b ranks and back, a * b = ranks; infinite for primes. The
// sides of the squarest grid add up to least.
double GridRounds(int ranks) {
  for (int a = static_cast<int>(std::sqrt(ranks)); a >= 2; --a) {
    if (ranks % a == 0) return 2 * (a - 1) + 2 * (ranks / a - 1);
  }
  return kNever;
}

// The kind with the fewest rounds among those that send as much and differ in their rounds alone;
// of equal ones the first of AllReduceKind.
AllReduceKind FewestRounds(int ranks) {
  if (ranks > 2 && IsPowerOfTwo(ranks)) return AllReduceKind::kHalvingDoubling;
  return GridRounds(ranks) < 2.0 * (ranks - 1) ? AllReduceKind::kGridRing : AllReduceKind::kRing;
}

// `sharding`: only algorithms that go through a state where every rank has one share of the sum.
CollectiveCost CheapestOnOneLink(int ranks, double bytes, const LinkSpec& link,
                                 const ReduceCost& cost, bool sharding = false) {
  CollectiveCost best = {kNever, AllReduceKind::kNone};
  for (const AllReduceKind kind : {AllReduceKind::kOneShot, AllReduceKind::kTwoPhase,
                                   FewestRounds(ranks), AllReduceKind::kHierarchical}) {
    if (sharding && kind == AllReduceKind::kOneShot) continue;
    const double seconds = AllReduceSecondsBy(kind, ranks, bytes, link, cost);
    if (seconds < best.seconds) best = {seconds, kind};
  }
  return best;
}

// The link that a flat algorithm over all tiers is as slow as.
LinkSpec SlowestLink(const Communicator& communicator) {
  LinkSpec slowest;
  slowest.bytes_per_second = kNever;
  slowest.latency_seconds = 0;
  double below = 1;  // ranks that share an uplink of this tier
  for (const CommunicatorTier& tier : communicator) {
    if (tier.fan > 1) {
      const double rate = tier.link.bytes_per_second / (tier.shared ? below : 1.0);
      slowest.bytes_per_second = std::min(slowest.bytes_per_second, rate);
      slowest.latency_seconds = std::max(slowest.latency_seconds, tier.link.latency_seconds);
      slowest.incast_threshold = std::min(slowest.incast_threshold, tier.link.incast_threshold);
      slowest.incast_seconds_per_byte =
          std::max(slowest.incast_seconds_per_byte, tier.link.incast_seconds_per_byte);
    }
    below *= tier.fan;
  }
  return slowest;
}

// Reduce-scatter and all-gather on each tier around the tier above; the outermost is a plain
// all-reduce.
double TieredSeconds(const Communicator& communicator, double bytes, const ReduceCost& cost) {
  double total = 0;
  double below = 1;
  const double ranks = Ranks(communicator);
  for (const CommunicatorTier& tier : communicator) {
    if (tier.fan <= 1) continue;
    LinkSpec link = tier.link;
    if (tier.shared) link.bytes_per_second /= below;
    const bool outermost = below * tier.fan == ranks;
    total += CheapestOnOneLink(tier.fan, bytes, link, cost, !outermost).seconds;
    bytes /= tier.fan;
    below *= tier.fan;
  }
  return total;
}

}  // namespace

std::string_view Name(AllReduceKind kind) {
  switch (kind) {
    case AllReduceKind::kNone: return "none";
    case AllReduceKind::kOneShot: return "one-shot";
    case AllReduceKind::kRing: return "ring";
    case AllReduceKind::kHalvingDoubling: return "halving-doubling";
    case AllReduceKind::kTwoPhase: return "two-phase";
    case AllReduceKind::kHierarchical: return "hierarchical";
    case AllReduceKind::kGridRing: return "grid ring";
    case AllReduceKind::kTiered: return "tiered";
  }
  return "?";
}

int Ranks(const Communicator& communicator) {
  int ranks = 1;
  for (const CommunicatorTier& tier : communicator) ranks *= tier.fan;
  return ranks;
}

double AllReduceSecondsBy(AllReduceKind kind, int ranks, double bytes, const LinkSpec& link,
                          const ReduceCost& cost) {
  if (ranks <= 1) return 0;
  const double n = ranks;
  const double sent = 2 * (n - 1) * bytes / n;
  const double reduced = (n - 1) * bytes / n;
  switch (kind) {
    case AllReduceKind::kOneShot:
      return Seconds({1, (n - 1) * bytes, (n - 1) * bytes, (n + 1) * bytes, n}, link, cost);
    case AllReduceKind::kRing:
      return Seconds({2 * (n - 1), sent, reduced, 3 * reduced, 2}, link, cost);
    case AllReduceKind::kHalvingDoubling:
      if (!IsPowerOfTwo(ranks)) return kNever;
      return Seconds(
          {2.0 * std::countr_zero(static_cast<unsigned>(ranks)), sent, reduced, 3 * reduced, 2},
          link, cost);
    case AllReduceKind::kTwoPhase:
      return Seconds({2, sent, reduced, (n + 1) * bytes / n, n}, link, cost);
    case AllReduceKind::kHierarchical: return HierarchicalSeconds(ranks, bytes, link, cost);
    case AllReduceKind::kGridRing:
      return Seconds({GridRounds(ranks), sent, reduced, 3 * reduced, 2}, link, cost);
    case AllReduceKind::kNone:
    case AllReduceKind::kTiered: break;
  }
  return kNever;
}

CollectiveCost AllReduce(const Communicator& communicator, double bytes, const ReduceCost& cost) {
  const int ranks = Ranks(communicator);
  if (ranks <= 1) return {};
  CollectiveCost best = CheapestOnOneLink(ranks, bytes, SlowestLink(communicator), cost);
  const auto tiers = std::count_if(communicator.begin(), communicator.end(),
                                   [](const CommunicatorTier& tier) { return tier.fan > 1; });
  if (tiers < 2) return best;
  const double tiered = TieredSeconds(communicator, bytes, cost);
  return tiered < best.seconds ? CollectiveCost{tiered, AllReduceKind::kTiered} : best;
}

double BroadcastSeconds(const Communicator& communicator, double bytes) {
  double total = 0;
  // Outermost first: one rank of each group gets the bytes, then hands them on inside.
  for (auto tier = communicator.rbegin(); tier != communicator.rend(); ++tier) {
    if (tier->fan <= 1) continue;
    const double n = tier->fan;
    const double alpha = tier->link.latency_seconds;
    const double wire = bytes / tier->link.bytes_per_second;
    const double direct = alpha + (n - 1) * wire;
    const double tree = std::bit_width(static_cast<unsigned>(tier->fan - 1)) * (alpha + wire);
    const double scatter_gather = 2 * alpha + 2 * (n - 1) / n * wire;
    total += std::min({direct, tree, scatter_gather});
  }
  return total;
}

double GatherSeconds(const Communicator& communicator, double bytes) {
  const int ranks = Ranks(communicator);
  if (ranks <= 1) return 0;
  return TransferSeconds(SlowestLink(communicator), bytes * (ranks - 1) / ranks);
}

}  // namespace tessera::scheduler
