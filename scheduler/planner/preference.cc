#include "scheduler/planner/preference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "scheduler/cost/step_budget.h"
#include "scheduler/planner/machine_losses.h"
#include "scheduler/planner/report/plan_attainment.h"
#include "scheduler/search/best/plain_placements.h"

namespace tessera::scheduler {
namespace {

constexpr double kUsualTpotSeconds = 0.1;
constexpr double kUsualTtftSeconds = 5;
constexpr double kUsualSimplerWithin = 0.05;
constexpr double kUsualLoad = 0.85;    // of the capacity, where no rate is asked for
constexpr int kCostOfLimitsUpTo = 64;  // devices, above which nobody waits for a second search
constexpr double kWorthSaying = 5e-4;
constexpr double kRounding = 1 - 1e-9;

// Mean; infinite: some wait without end.
double TtftOf(const PlacementProblem& problem, const Placement& placement) {
  v1::DeploymentPlan scratch;
  const LengthMoments lengths = MomentsOf(problem.samples);
  for (const PlacedReplica& placed : placement.replicas) {
    v1::Replica& replica = *scratch.add_replicas();
    const ReplicaSpec spec = SpecOf(problem, placed);
    replica.set_max_batched_tokens(
        StepBudget(*problem.model, spec, lengths, problem.options, placed.rate));
    replica.set_max_sequences(SequenceBudget(lengths, problem.options, spec, placed.rate));
  }
  const double asked = problem.required_requests_per_second;
  const bool less = asked > 0 && asked < placement.requests_per_second;
  const double load = less ? asked / placement.requests_per_second : kUsualLoad;
  const bool end = PredictLatencies({&problem, &placement, load}, &scratch);
  return end ? scratch.prediction().time_to_first_token_seconds()
             : std::numeric_limits<double>::infinity();
}

// While all decode that may, as the limit has it.
double LongestTpot(const Placement& placement) {
  double longest = 0;
  for (const PlacedReplica& one : placement.replicas)
    longest = std::max(longest, one.rate.tpot_seconds);
  return longest;
}

bool BoundByTpot(const Placement& placement) {
  return std::any_of(placement.replicas.begin(), placement.replicas.end(),
                     [](const PlacedReplica& one) { return one.rate.limit == Limit::kTpot; });
}

class Preferring {
 public:
  Preferring(PlacementProblem* problem, const Preference& preference, const Search& search)
      : problem_(*problem), preference_(preference), search_(search) {}

  absl::StatusOr<PreferredPlacement> Run() {
    if (preference_.max_tpot_seconds > 0)
      problem_.options.max_tpot_seconds = preference_.max_tpot_seconds;
    absl::StatusOr<Placement> found = search_(problem_);
    const bool none = !found.ok() || !(found->requests_per_second > 0);
    const bool tpot_missed = none && preference_.max_tpot_seconds > 0;
    if (tpot_missed) {
      problem_.options.max_tpot_seconds = std::numeric_limits<double>::infinity();
      found = search_(problem_);
    }
    if (!found.ok()) return found.status();
    Collect(*std::move(found));
    const size_t best = BestWithin();
    const size_t chosen = Simplest(best);
    if (tpot_missed) {
      Miss(v1::LATENCY_LIMIT_TPOT, preference_.max_tpot_seconds, LongestTpot(placements_[chosen]));
    }
    if (!tpot_missed) SayCostOfLimits(placements_[best]);
    SaySimplicity(best, chosen);
    return PreferredPlacement{Taken(chosen), std::move(notes_)};
  }

 private:
  // The search's first; its bound holds for all.
  void Collect(Placement found) {
    std::vector<Placement> others = std::exchange(found.alternatives, {});
    placements_.push_back(std::move(found));
    searched_ = others.size() + 1;
    for (Placement& other : others) placements_.push_back(std::move(other));
    if (problem_.graph->devices() > kPlainUpTo || problem_.watch.Stopped() ||
        preference_.simpler_within <= 0)
      return;
    ReplicaJudge judge(problem_);
    for (Placement& plain : JudgedPlain(problem_, &judge)) placements_.push_back(std::move(plain));
  }

  double RateOf(size_t i) const { return placements_[i].requests_per_second; }

  bool InTime(size_t i) {
    if (preference_.max_ttft_seconds <= 0 || ttft_missed_) return true;
    in_time_.resize(placements_.size(), -1);
    if (in_time_[i] < 0) {
      const double ttft = TtftOf(problem_, placements_[i]);
      in_time_[i] = ttft <= preference_.max_ttft_seconds ? 1 : 0;
    }
    return in_time_[i] > 0;
  }

  // The one that serves most within the limit of TTFT; the limit goes where there is none.
  size_t BestWithin() {
    std::vector<size_t> order(placements_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return RateOf(a) > RateOf(b); });
    for (const size_t i : order) {
      if (InTime(i)) return i;
    }
    ttft_missed_ = true;
    const double mean = TtftOf(problem_, placements_[order.front()]);
    Miss(v1::LATENCY_LIMIT_TTFT, preference_.max_ttft_seconds, std::isfinite(mean) ? mean : 0);
    return order.front();
  }

  void Miss(v1::LatencyLimit limit, double limit_seconds, double seconds) {
    v1::MissedLimit& missed = *notes_.emplace_back().mutable_missed_limit();
    missed.set_limit(limit);
    missed.set_limit_seconds(limit_seconds);
    missed.set_seconds(seconds);
  }

  size_t Simplest(size_t best) {
    const double least = RateOf(best) * (1 - preference_.simpler_within) * kRounding;
    int fewest = MostStages(placements_[best]);
    std::vector<size_t> simple;
    for (size_t i = 0; i < placements_.size(); ++i) {
      if (preference_.simpler_within <= 0 || RateOf(i) < least) continue;
      const int stages = MostStages(placements_[i]);
      if (stages > fewest || !InTime(i)) continue;
      if (stages < fewest) simple.clear();
      fewest = stages;
      simple.push_back(i);
    }
    // Of those with as few stages as the best, it is the best, unless it has more to lose.
    size_t chosen = best;
    double most_left = -1;
    std::stable_sort(simple.begin(), simple.end(),
                     [&](size_t a, size_t b) { return RateOf(a) > RateOf(b); });
    for (const size_t i : simple) {
      const std::vector<MachineLoss> losses = LossesOf(problem_, placements_[i]);
      const double left = losses.empty() ? 0 : losses.front().requests_per_second;
      if (left <= most_left * (1 + kWorthSaying)) continue;
      most_left = left;
      chosen = i;
    }
    return chosen;
  }

  void SayCostOfLimits(const Placement& best) {
    if (preference_.max_tpot_seconds <= 0 || problem_.watch.Stopped() ||
        problem_.graph->devices() > kCostOfLimitsUpTo)
      return;
    double most = RateOf(0);
    if (BoundByTpot(placements_[0])) {
      PlacementProblem unlimited = problem_;
      unlimited.options.max_tpot_seconds = std::numeric_limits<double>::infinity();
      unlimited.bound = unlimited.prove = false;
      const absl::StatusOr<Placement> other = search_(unlimited);
      if (other.ok()) most = std::max(most, other->requests_per_second);
    }
    const double cost = 1 - best.requests_per_second / most;
    v1::LimitsCost& limits = *notes_.emplace_back().mutable_limits_cost();
    limits.set_tpot_seconds(preference_.max_tpot_seconds);
    if (!ttft_missed_) limits.set_ttft_seconds(preference_.max_ttft_seconds);
    if (cost < kWorthSaying) return;
    limits.set_lost_share(cost);
    limits.set_requests_per_second(most);
  }

  void SaySimplicity(size_t best, size_t chosen) {
    const double cost = 1 - RateOf(chosen) / RateOf(best);
    if (chosen == best || cost < kWorthSaying) return;
    v1::SimplicityCost& simplicity = *notes_.emplace_back().mutable_simplicity_cost();
    simplicity.set_lost_share(cost);
    simplicity.set_requests_per_second(RateOf(best));
    simplicity.set_stages(MostStages(placements_[chosen]));
    simplicity.set_other_stages(MostStages(placements_[best]));
    simplicity.set_within(preference_.simpler_within);
  }

  Placement Taken(size_t chosen) {
    Placement& first = placements_.front();
    Placement taken = placements_[chosen];
    const int stages = MostStages(taken);
    if (chosen > 0) {
      taken.upper_bound = BoundOver(first.upper_bound, taken.requests_per_second);
      taken.proved = false;
      taken.notes = first.notes;
      taken.shadow_prices = first.shadow_prices;
      taken.evaluations = first.evaluations;
      taken.interrupted = first.interrupted;
    }
    // Who judges by other means finds nothing less simple, but where what splits may be less than
    // it seems.
    for (size_t i = 0; i < searched_; ++i) {
      const bool judged = Splits(taken) || MostStages(placements_[i]) <= stages;
      if (i != chosen && judged && InTime(i)) taken.alternatives.push_back(placements_[i]);
    }
    return taken;
  }

  PlacementProblem& problem_;
  const Preference& preference_;
  const Search& search_;
  std::vector<Placement> placements_;
  size_t searched_ = 0;       // of them, which the search found
  std::vector<int> in_time_;  // -1: not known
  bool ttft_missed_ = false;
  std::vector<v1::Note> notes_;
};

}  // namespace

Preference UsualPreference() { return {kUsualTpotSeconds, kUsualTtftSeconds, kUsualSimplerWithin}; }

int MostStages(const Placement& placement) {
  size_t most = 0;
  for (const PlacedReplica& replica : placement.replicas)
    most = std::max(most, replica.stages.size());
  return static_cast<int>(most);
}

absl::StatusOr<PreferredPlacement> SearchPreferred(PlacementProblem* problem,
                                                   const Preference& preference,
                                                   const Search& search) {
  return Preferring(problem, preference, search).Run();
}

}  // namespace tessera::scheduler
