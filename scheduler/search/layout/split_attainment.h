// What the requests of split pairs attain at given rates, with all that pairs share: the queue of
// a prefilling replica, the room and the pace of a decoding one, the links between them.
//
// A link that others use is there in part: of transfers that share one evenly, one takes
// X / (1 - u) on average, u the part of the link's time that all of them take (M/G/1 with processor
// sharing). What is computed stays where it was until it is sent: no more than the KV there holds.
// On average a decoding replica leaves the headroom of its KV free. Source: cost/attainment.
// Thread rule: const after construction; borrows what it is given. Units: requests per second.
#pragma once

#include <vector>

#include "scheduler/cost/attainment.h"
#include "scheduler/search/layout/problem.h"
#include "scheduler/search/layout/rate_program.h"

namespace tessera::scheduler {

class SplitAttainment {
 public:
  // Looks at `replicas`, whose rates (capacity, micro-batches, KV) are given.
  SplitAttainment(const PlacementProblem& problem, const AttainmentModel& model,
                  const std::vector<PlacedReplica>& replicas);

  // The pairs that there are; those of `shares` have a rate.
  const RateProgram& transport() const { return transport_; }
  std::vector<double> RatesOf(const std::vector<Share>& shares) const;

  struct Operation {
    std::vector<Attained> pairs;     // of the transport; nothing of those without a rate
    std::vector<DecodeLoad> decode;  // by replica, of those that only decode
    bool kv_fits = true;             // beside the headroom
  };
  Operation At(const std::vector<double>& pair_rates) const;
  // The largest part of these rates at which enough requests of all pairs together are within their
  // limits; 0: at none.
  double PartWithinLimits(const std::vector<double>& pair_rates) const;

  const PrefillSpeed& speed(int replica) const { return speeds_[static_cast<size_t>(replica)]; }
  const ReplicaCurve& curve(int replica) const { return curves_[static_cast<size_t>(replica)]; }

 private:
  static RateProgram PairsOf(const PlacementProblem& problem, const AttainmentModel& model,
                             const std::vector<PlacedReplica>& replicas);
  bool Enough(const std::vector<double>& pair_rates) const;
  std::vector<KvPath> PathsAt(const std::vector<double>& pair_rates) const;

  const PlacementProblem& problem_;
  const AttainmentModel& model_;
  const std::vector<PlacedReplica>& replicas_;
  const RateProgram transport_;
  std::vector<PrefillSpeed> speeds_;  // by replica; of those that only prefill
  std::vector<ReplicaCurve> curves_;  // by replica; of those that only decode
};

// The way of a pair of a transport of `problem`, alone on its links.
KvPath PathOf(const PlacementProblem& problem, const RateProgram::Pair& pair);

}  // namespace tessera::scheduler
