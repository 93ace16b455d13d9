#include "scheduler/planner/single_user.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/device_groups.h"
#include "scheduler/search/layout/mixed_pipelines.h"
#include "scheduler/search/layout/mixed_stages.h"

namespace tessera::scheduler {
namespace {

constexpr int kTogetherUpTo = 16;     // devices, above which a layout of all takes seconds
constexpr double kAsFast = 1.01;      // of the soonest answer
constexpr double kClearly = 1.1;      // sooner
constexpr int64_t kMaxStates = 1000;  // of one layout, see GroupLayoutOptions

AloneTimes TimesOf(const PlacementProblem& problem, const LengthMoments& lengths,
                   const PlacedReplica& prefill, const PlacedReplica& decode) {
  AloneTimes times;
  times.ttft_seconds = PrefillLatencySeconds(
      *problem.model, SpecOf(problem, prefill), lengths.uncached_prompt_tokens,
      lengths.prompt_tokens - lengths.uncached_prompt_tokens, problem.options);
  if (lengths.decode_steps > 0) {
    StepWork work = DecodeWork(1, lengths.mean_decode_context());
    times.tpot_seconds = PeriodOf(*problem.model, SpecOf(problem, decode), work, 1).seconds;
  }
  times.answer_seconds = times.ttft_seconds + lengths.decode_steps * times.tpot_seconds;
  return times;
}

class FastestReplicas {
 public:
  explicit FastestReplicas(const PlacementProblem& problem)
      : problem_(problem),
        lengths_(MomentsOf(problem.samples)),
        alone_(OneAtOnce(problem)),
        layouts_(alone_, Effort()) {}

  std::vector<Placement> Run(const std::vector<PlacedReplica>* pipelines) {
    const std::vector<DevicePool>& pools = problem_.graph->pools();
    std::vector<DeviceGroup> groups;
    for (size_t m = 0; m < problem_.graph->machines().size(); ++m) {
      DeviceGroup& group = groups.emplace_back();
      for (const DevicePool& pool : pools)
        group.counts.push_back(pool.machine == static_cast<int>(m) ? pool.count : 0);
    }
    for (const DeviceGroup& group : groups) Consider(group);
    if (taken_.empty() || problem_.graph->devices() <= kTogetherUpTo)
      Consider(layouts_.Everything(Role::kBoth));
    if (pipelines != nullptr) TakeMixed(*pipelines);
    if (taken_.empty()) return {};
    std::vector<Placement> placements;
    KeepSoonest(&placements);
    std::vector<PlacedReplica> all;
    for (DeviceGroup& group : groups) AddAsFast(&group, &all);
    if (all.size() > 1) Keep(std::move(all), &placements);
    std::stable_sort(placements.begin(), placements.end(), [&](const auto& a, const auto& b) {
      return a.requests_per_second > b.requests_per_second;
    });
    return placements;
  }

 private:
  static PlacementProblem OneAtOnce(PlacementProblem problem) {
    problem.options.max_sequences = 1;
    problem.options.max_tpot_seconds = std::numeric_limits<double>::infinity();
    problem.goal = Goal::kThroughput;
    return problem;
  }

  static GroupLayoutOptions Effort() {
    GroupLayoutOptions options;
    options.most_states = kMaxStates;
    return options;
  }

  double AnswerOf(const PlacedReplica& replica) const {
    return TimesOf(problem_, lengths_, replica, replica).answer_seconds;
  }

  void Consider(const DeviceGroup& group) {
    if (problem_.watch.Stopped()) return;
    const PlacedReplica& replica = layouts_.ReplicaOf(group);
    if (!replica.stages.empty()) Take(replica);
  }

  void Take(const PlacedReplica& replica) {
    const double answer = AnswerOf(replica);
    if (answer >= answer_ || !HasRoom(replica)) return;
    answer_ = answer;
    taken_.push_back(replica);
  }

  void TakeMixed(const std::vector<PlacedReplica>& pipelines) {
    for (const PlacedReplica& replica : MixedReplicas(problem_)) Take(replica);
    // The soonest leave little room for KV: each is to be clearly sooner than what serves more.
    for (auto pipeline = pipelines.rbegin(); pipeline != pipelines.rend(); ++pipeline) {
      if (AnswerOf(*pipeline) * kClearly < answer_) Take(*pipeline);
    }
  }

  // For a sequence; the layout search has seen to it, mixed stages have not been judged.
  bool HasRoom(const PlacedReplica& replica) const {
    const ReplicaSpec spec = SpecOf(problem_, replica);
    return CapacityOf(*problem_.model, spec, lengths_, alone_.options).requests_per_second > 0;
  }

  // Replicas on devices of the group, as long as they are as fast as the soonest.
  void AddAsFast(DeviceGroup* group, std::vector<PlacedReplica>* all) {
    while (group->devices() > 0 && !problem_.watch.Stopped()) {
      const PlacedReplica& replica = layouts_.ReplicaOf(*group);
      if (replica.stages.empty() || AnswerOf(replica) > answer_ * kAsFast) return;
      all->push_back(replica);
      const std::vector<int> used = DevicesByPool(replica.stages, group->counts.size());
      for (size_t p = 0; p < used.size(); ++p) group->counts[p] -= used[p];
    }
  }

  // The soonest that serves within the limits of the classes, which Take does not know.
  void KeepSoonest(std::vector<Placement>* placements) {
    for (auto replica = taken_.rbegin(); replica != taken_.rend(); ++replica) {
      Keep({*replica}, placements);
      if (placements->empty()) continue;
      answer_ = AnswerOf(*replica);
      return;
    }
  }

  void Keep(std::vector<PlacedReplica> replicas, std::vector<Placement>* placements) const {
    absl::StatusOr<Placement> placement = Assemble(problem_, std::move(replicas));
    if (placement.ok() && placement->requests_per_second > 0)
      placements->push_back(*std::move(placement));
  }

  const PlacementProblem& problem_;
  const LengthMoments lengths_;
  const PlacementProblem alone_;  // one sequence at once
  GroupLayouts layouts_;
  std::vector<PlacedReplica> taken_;  // each sooner than the one before
  double answer_ = std::numeric_limits<double>::infinity();
};

}  // namespace

AloneTimes TimesAlone(const PlacementProblem& problem, const Placement& placement) {
  const LengthMoments lengths = MomentsOf(problem.samples);
  AloneTimes mean;
  double rate = 0;
  for (const Share& share : placement.shares) rate += share.requests_per_second;
  if (rate <= 0) return mean;
  std::map<std::pair<int, int>, double> parts;
  for (const Share& share : placement.shares)
    parts[{share.prefill, share.decode}] += share.requests_per_second / rate;
  for (const auto& [pair, part] : parts) {
    const AloneTimes times =
        TimesOf(problem, lengths, placement.replicas[static_cast<size_t>(pair.first)],
                placement.replicas[static_cast<size_t>(pair.second)]);
    mean.ttft_seconds += part * times.ttft_seconds;
    mean.tpot_seconds += part * times.tpot_seconds;
    mean.answer_seconds += part * times.answer_seconds;
  }
  return mean;
}

std::vector<Placement> FastestPlacements(const PlacementProblem& problem) {
  const std::vector<PlacedReplica> pipelines = MixedPipelines(problem);
  return FastestPlacements(problem, &pipelines);
}

std::vector<Placement> FastestPlacements(const PlacementProblem& problem,
                                         const std::vector<PlacedReplica>* pipelines) {
  return FastestReplicas(problem).Run(pipelines);
}

}  // namespace tessera::scheduler
