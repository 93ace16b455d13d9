#include "scheduler/search/layout/goodput.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace tessera::scheduler {
namespace {

constexpr double kLayoutParts[] = {0.6, 0.35, 0.2};  // of the TPOT of the layout that serves most

const std::vector<RequestClass>& JudgedClasses(const PlacementProblem& problem) {
  static const auto& none = *new std::vector<RequestClass>;
  return problem.goal == Goal::kGoodput ? problem.classes : none;
}

}  // namespace

std::string AlikeKey(const ReplicaSpec& replica) {
  std::string key = absl::StrFormat("%d,%d", static_cast<int>(replica.role), replica.micro_batches);
  for (const StageSpec& stage : replica.stages) {
    absl::StrAppendFormat(&key, "|%d", stage.layers);
    for (const DeviceSpec* rank : stage.ranks)
      absl::StrAppendFormat(&key, ",%p", static_cast<const void*>(rank));
    for (const RankShare& share : stage.shares)
      absl::StrAppendFormat(&key, ":%d,%d", share.kinds[0].kv_heads + share.kinds[0].key_groups,
                            share.vocabulary_rows);
    for (const CommunicatorTier& tier : stage.communicator)
      absl::StrAppendFormat(&key, ";%d,%d,%.17g,%.17g,%g,%.17g", tier.fan, tier.shared ? 1 : 0,
                            tier.link.bytes_per_second, tier.link.latency_seconds,
                            tier.link.incast_threshold, tier.link.incast_seconds_per_byte);
  }
  for (const LinkSpec& hop : replica.hops)
    absl::StrAppendFormat(&key, "|%.17g,%.17g", hop.bytes_per_second, hop.latency_seconds);
  return key;
}

ReplicaJudge::ReplicaJudge(const PlacementProblem& problem)
    : problem_(problem),
      lengths_(MomentsOf(problem.samples)),
      attainment_(*problem.model, JudgedClasses(problem), problem.options,
                  problem.arrival_variation) {}

ReplicaRate ReplicaJudge::RateOf(const ReplicaSpec& replica) {
  const auto [at, fresh] = known_.try_emplace(AlikeKey(replica));
  if (!fresh) return at->second;
  ReplicaRate& rate = at->second;
  rate = CapacityOf(*problem_.model, replica, lengths_, problem_.options);
  if (problem_.goal != Goal::kGoodput || replica.role == Role::kDecode) return rate;
  if (replica.role == Role::kBoth) return rate = attainment_.WithinLimits(replica, rate);
  const double capacity = rate.requests_per_second;
  const PrefillSpeed speed = attainment_.PrefillBeside(replica, rate.micro_batches, 0, 0);
  rate.requests_per_second = attainment_.LargestWithinLimits(
      capacity, [&](double r) { return attainment_.At(speed, r, {}); });
  if (rate.requests_per_second < capacity) rate.limit = Limit::kObjectives;
  return rate;
}

ReplicaRate ReplicaJudge::GoodputAbove(double known, const ReplicaSpec& replica,
                                       const ReplicaRate& capacity) {
  std::string key = AlikeKey(replica);
  const auto at = known_.find(key);
  if (at != known_.end()) return at->second;
  const auto [most, fresh] = at_most_.try_emplace(key, capacity.requests_per_second);
  if (most->second <= known) return ReplicaRate();
  const ReplicaRate rate = attainment_.WithinLimits(replica, capacity, known);
  if (rate.requests_per_second > 0) {
    known_.emplace(std::move(key), rate);
  } else {
    most->second = known;
  }
  return rate;
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

}  // namespace tessera::scheduler
