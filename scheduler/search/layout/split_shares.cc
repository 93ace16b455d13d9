#include "scheduler/search/layout/split_shares.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "scheduler/search/layout/rate_program.h"
#include "scheduler/search/layout/split_attainment.h"

namespace tessera::scheduler {
namespace {

constexpr double kDecodeParts[] = {1, 0.95, 0.9, 0.8, 0.65, 0.5, 0.35};
constexpr double kLinkParts[] = {1, 0.9, 0.75};
constexpr double kNear = 1.5;  // of the time of the best way

class Proposals {
 public:
  Proposals(const PlacementProblem& problem, const AttainmentModel& attainment,
            std::vector<PlacedReplica>* replicas)
      : problem_(problem), attainment_(attainment), replicas_(*replicas) {}

  absl::StatusOr<std::vector<Share>> Best() {
    Rate();
    const SplitAttainment split(problem_, attainment_, replicas_);
    if (split.transport().pairs.empty()) return best_;
    const std::vector<double> most = MostDecodedBy(split);
    for (const double part : kDecodeParts) {
      std::vector<double> decodes = most;
      for (double& rate : decodes) rate *= part;
      // More than is decoded is not served.
      if (std::accumulate(decodes.begin(), decodes.end(), 0.0) <= served_) break;
      const std::vector<double> rates = PairRates(split, decodes);
      for (const bool near : {false, true}) {
        RateProgram transport = split.transport();
        if (!Limit(rates, decodes, near, &transport)) continue;
        if (absl::Status s = Offer(split, transport); !s.ok()) return s;
      }
    }
    for (size_t i = 0; i < best_capacity_.size(); ++i) {
      if (replicas_[i].role == Role::kBoth) continue;
      ReplicaRate& rate = replicas_[i].rate;
      if (best_capacity_[i] < rate.requests_per_second) rate.limit = Limit::kObjectives;
      rate.requests_per_second = best_capacity_[i];
    }
    return std::move(best_);
  }

 private:
  // What replicas with a role can do, however long it takes.
  void Rate() {
    for (PlacedReplica& replica : replicas_) {
      if (replica.role == Role::kBoth) continue;
      replica.rate = CapacityOf(*problem_.model, SpecOf(problem_, replica), attainment_.lengths(),
                                problem_.options);
    }
  }

  double MostOf(int replica) const {
    return replicas_[static_cast<size_t>(replica)].rate.requests_per_second;
  }

  // The largest rate of each decoding replica at which requests attain whose prompts had not to
  // wait.
  std::vector<double> MostDecodedBy(const SplitAttainment& split) const {
    std::vector<double> most(replicas_.size(), 0);
    for (const RateProgram::Pair& pair : split.transport().pairs) {
      const ReplicaCurve& curve = split.curve(pair.decode);
      const PrefillSpeed& speed = split.speed(pair.prefill);
      const KvPath path = PathOf(problem_, pair);
      const double kept = attainment_.KeptBefore(speed, 0, path);
      double& best = most[static_cast<size_t>(pair.decode)];
      best = std::max(best, attainment_.LargestWithinLimits(MostOf(pair.decode), [&](double rate) {
        return attainment_.At(speed, 0, attainment_.LoadOf(curve, rate, rate * kept), &path);
      }));
    }
    return most;
  }

  // By pair: how much a prefilling replica that sends there only may send, where decoding replicas
  // carry `decodes`, what others send there having waited as long. 0: nothing attains.
  std::vector<double> PairRates(const SplitAttainment& split,
                                const std::vector<double>& decodes) const {
    std::vector<double> rates;
    for (const RateProgram::Pair& pair : split.transport().pairs) {
      const ReplicaCurve& curve = split.curve(pair.decode);
      const PrefillSpeed& speed = split.speed(pair.prefill);
      const KvPath path = PathOf(problem_, pair);
      const double decoded = decodes[static_cast<size_t>(pair.decode)];
      rates.push_back(attainment_.LargestWithinLimits(MostOf(pair.prefill), [&](double rate) {
        const double kept = decoded * attainment_.KeptBefore(speed, rate, path);
        return attainment_.At(speed, rate, attainment_.LoadOf(curve, decoded, kept), &path);
      }));
    }
    return rates;
  }

  // Lowers prefilling replicas to what attains with every partner; `near`: those only over ways
  // about as good as the best. False: nothing attains.
  static bool Limit(const std::vector<double>& rates, const std::vector<double>& decodes, bool near,
                    RateProgram* transport) {
    std::vector<double> best(decodes.size(), kUnbounded);  // seconds of the KV of a mean request
    for (const RateProgram::Pair& pair : transport->pairs) {
      double& seconds = best[static_cast<size_t>(pair.prefill)];
      seconds = std::min(seconds, 1 / pair.link_rate);
    }
    bool any = false;
    for (size_t k = 0; k < rates.size(); ++k) {
      RateProgram::Pair& pair = transport->pairs[k];
      const auto prefill = static_cast<size_t>(pair.prefill),
                 decode = static_cast<size_t>(pair.decode);
      transport->capacity[decode] = decodes[decode];
      if (rates[k] <= 0 || (near && 1 / pair.link_rate > kNear * best[prefill])) {
        pair.link_rate = 0;
        continue;
      }
      any = true;
      transport->capacity[prefill] = std::min(transport->capacity[prefill], rates[k]);
    }
    return any;
  }

  absl::Status Offer(const SplitAttainment& split, const RateProgram& transport) {
    for (const double part : kLinkParts) {
      RateProgram within = transport;
      for (LoadedLink& link : within.shared) link.rate *= part;
      for (RateProgram::Pair& pair : within.pairs) pair.link_rate *= part;
      const absl::StatusOr<std::vector<double>> rates = SolveTransport(within);
      if (!rates.ok()) return rates.status();
      const double served = std::accumulate(rates->begin(), rates->end(), 0.0);
      if (served <= served_) break;  // with less of the links neither
      const double kept = split.PartWithinLimits(*rates);
      if (kept * served <= served_) continue;
      served_ = kept * served;
      best_capacity_ = transport.capacity;
      best_.clear();
      for (size_t k = 0; k < rates->size(); ++k) {
        const RateProgram::Pair& pair = transport.pairs[k];
        if ((*rates)[k] > 0)
          best_.push_back({pair.prefill, pair.decode, kept * (*rates)[k], pair.codec});
      }
    }
    return absl::OkStatus();
  }

  const PlacementProblem& problem_;
  const AttainmentModel& attainment_;
  std::vector<PlacedReplica>& replicas_;
  std::vector<double> best_capacity_;  // by replica
  std::vector<Share> best_;
  double served_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<Share>> SharesWithinLimits(const PlacementProblem& problem,
                                                      const AttainmentModel& attainment,
                                                      std::vector<PlacedReplica>* replicas) {
  return Proposals(problem, attainment, replicas).Best();
}

void KeepWithinLimits(const PlacementProblem& problem, const AttainmentModel& attainment,
                      const std::vector<PlacedReplica>& replicas, std::vector<Share>* shares) {
  const SplitAttainment split(problem, attainment, replicas);
  const double part = split.PartWithinLimits(split.RatesOf(*shares));
  for (Share& share : *shares) {
    if (share.prefill != share.decode) share.requests_per_second *= part;
  }
}

}  // namespace tessera::scheduler
