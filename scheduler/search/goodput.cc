#include "scheduler/search/goodput.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace tessera::scheduler {
namespace {

constexpr double kPaces[] = {1, 0.95, 0.85, 0.7, 0.55, 0.4, 0.25};  // of the slowest that is useful
constexpr double kLayoutParts[] = {0.6, 0.35, 0.2};  // of the TPOT of the layout that serves most
constexpr double kNear = 1.5;                        // of the time of the best way

// Replicas of equal keys are alike to the cost model.
std::string KeyOf(const ReplicaSpec& replica) {
  std::string key = absl::StrFormat("%d,%d", static_cast<int>(replica.role), replica.micro_batches);
  for (const StageSpec& stage : replica.stages) {
    absl::StrAppendFormat(&key, "|%d", stage.layers);
    for (const DeviceSpec* rank : stage.ranks)
      absl::StrAppendFormat(&key, ",%p", static_cast<const void*>(rank));
    for (const CommunicatorTier& tier : stage.communicator)
      absl::StrAppendFormat(&key, ";%d,%d,%.17g,%.17g,%g,%.17g", tier.fan, tier.shared ? 1 : 0,
                            tier.link.bytes_per_second, tier.link.latency_seconds,
                            tier.link.incast_threshold, tier.link.incast_seconds_per_byte);
  }
  for (const LinkSpec& hop : replica.hops)
    absl::StrAppendFormat(&key, "|%.17g,%.17g", hop.bytes_per_second, hop.latency_seconds);
  return key;
}

const std::vector<RequestClass>& JudgedClasses(const PlacementProblem& problem) {
  static const auto& none = *new std::vector<RequestClass>;
  return problem.goal == Goal::kGoodput ? problem.classes : none;
}

}  // namespace

ReplicaJudge::ReplicaJudge(const PlacementProblem& problem)
    : problem_(problem),
      lengths_(MomentsOf(problem.samples)),
      attainment_(*problem.model, JudgedClasses(problem), problem.options,
                  problem.arrival_variation) {}

ReplicaRate ReplicaJudge::RateOf(const ReplicaSpec& replica) {
  if (problem_.goal != Goal::kGoodput || replica.role == Role::kDecode)
    return CapacityOf(*problem_.model, replica, lengths_, problem_.options);
  const auto [at, fresh] = known_.try_emplace(KeyOf(replica));
  if (!fresh) return at->second;
  ReplicaRate& rate = at->second;
  rate = CapacityOf(*problem_.model, replica, lengths_, problem_.options);
  if (replica.role == Role::kBoth) return rate = attainment_.WithinLimits(replica, rate);
  const double capacity = rate.requests_per_second;
  rate.requests_per_second = attainment_.PrefillRateWithinLimits(
      attainment_.PrefillBeside(replica, rate.micro_batches, 0, 0), capacity, {}, nullptr);
  if (rate.requests_per_second < capacity) rate.limit = Limit::kObjectives;
  return rate;
}

std::vector<double> ReplicaJudge::Paces(const std::vector<PlacedReplica>& replicas) {
  double slowest = 0;
  for (const PlacedReplica& replica : replicas) {
    if (replica.role != Role::kDecode) continue;
    const ReplicaRate rate =
        CapacityOf(*problem_.model, SpecOf(problem_, replica), lengths_, problem_.options);
    slowest = std::max(slowest, rate.tpot_seconds);
  }
  // A faster pace leaves time for the KV's way, and for the queue where the whole is limited.
  const bool limited = std::isfinite(LargestUsefulTpot(problem_.classes));
  std::vector<double> paces;
  for (const double part : kPaces) {
    if (slowest > 0 && (part == 1 || limited)) paces.push_back(part * slowest);
  }
  return paces;
}

Layout BestLayoutFor(ReplicaJudge* judge, const LayoutProblem& layout) {
  Layout best = BestLayout(layout);
  if (judge->goal() != Goal::kGoodput || best.stages.empty() || layout.role == Role::kDecode)
    return best;
  const double tpot = best.rate.tpot_seconds;
  best.rate = judge->RateOf(MakeReplica(layout, best.stages));
  if (layout.role == Role::kPrefill) return best;
  for (const double part : kLayoutParts) {
    LayoutProblem tighter = layout;
    tighter.known_rate = best.rate.requests_per_second;  // who serves less is worth less
    tighter.options.max_tpot_seconds = std::min(layout.options.max_tpot_seconds, part * tpot);
    Layout other = BestLayout(tighter);
    if (other.stages.empty()) continue;
    other.rate = judge->RateOf(MakeReplica(layout, other.stages));
    if (other.rate.requests_per_second > best.rate.requests_per_second) best = std::move(other);
  }
  return best;
}

KvPath PathOf(const PlacementProblem& problem, const Transport::Pair& pair) {
  KvPath path;
  path.link = pair.link;
  path.codec = pair.codec;
  path.codec_rates = problem.codec_rates;
  return path;
}

bool ReplicaJudge::RateSplit(double pace_seconds, bool near, std::vector<PlacedReplica>* replicas,
                             Transport* transport) {
  ReplicaOptions at_pace = problem_.options;
  at_pace.max_tpot_seconds = std::min(at_pace.max_tpot_seconds, pace_seconds);
  std::vector<const PlacedReplica*> given;
  DecodePace pace = {pace_seconds, 0};
  for (PlacedReplica& replica : *replicas) {
    const ReplicaSpec spec = SpecOf(problem_, replica);
    if (replica.role != Role::kBoth) {
      replica.rate = CapacityOf(*problem_.model, spec, lengths_,
                                replica.role == Role::kDecode ? at_pace : problem_.options);
    }
    if (replica.role == Role::kDecode && replica.rate.requests_per_second > 0) {
      const DecodePace own =
          attainment_.DecodePaceOf(spec, replica.rate.micro_batches, replica.rate.decode_rows);
      pace.spread_seconds = std::max(pace.spread_seconds, own.spread_seconds);
    }
    given.push_back(&replica);
  }
  *transport = MakeTransport(problem_, lengths_, given);
  std::vector<double> best(replicas->size(), kUnbounded);  // seconds of the KV of a mean request
  for (const Transport::Pair& pair : transport->pairs) {
    double& seconds = best[static_cast<size_t>(pair.prefill)];
    seconds = std::min(seconds, 1 / pair.link_rate);
  }
  bool any = false;
  for (size_t i = 0; i < replicas->size(); ++i) {
    PlacedReplica& replica = (*replicas)[i];
    if (replica.role != Role::kPrefill) continue;
    const double capacity = replica.rate.requests_per_second;
    const PrefillSpeed speed =
        attainment_.PrefillBeside(SpecOf(problem_, replica), replica.rate.micro_batches, 0, 0);
    double least = capacity;
    for (Transport::Pair& pair : transport->pairs) {
      if (pair.prefill != static_cast<int>(i)) continue;
      const KvPath path = PathOf(problem_, pair);
      const double rate = near && 1 / pair.link_rate > kNear * best[i]
                              ? 0
                              : attainment_.PrefillRateWithinLimits(speed, capacity, pace, &path);
      if (rate > 0) {
        least = std::min(least, rate);
        any = true;
      } else {
        pair.link_rate = 0;  // not even a request alone is within its limits
      }
    }
    replica.rate.requests_per_second = least;
    transport->capacity[i] = least;
    if (least < capacity) replica.rate.limit = Limit::kObjectives;
  }
  return any;
}

}  // namespace tessera::scheduler
