#include "scheduler/planner/candidates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "scheduler/cost/step_budget.h"
#include "scheduler/planner/machine_losses.h"
#include "scheduler/planner/missed_limits.h"
#include "scheduler/planner/part_search.h"
#include "scheduler/planner/refusal.h"
#include "scheduler/planner/report/plan_attainment.h"
#include "scheduler/planner/single_user.h"
#include "scheduler/search/best/class_search.h"
#include "scheduler/search/best/plain_placements.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/goodput.h"
#include "scheduler/search/layout/mixed_pipelines.h"
#include "scheduler/search/layout/mixed_stages.h"

namespace tessera::scheduler {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr double kIdleLoad = 1e-3;   // at which nothing waits
constexpr int kLossesUpTo = 128;     // devices, above which each loss is a program that takes long
constexpr double kServesOn = 0.01;   // of the rate: less is no service
constexpr double kMinTtftRatio = 2;  // of T to the best TTFT of idle replicas
constexpr double kRoomForSteps = 1.011;  // above a TPOT, for chunks that fill a step
constexpr double kNear = 0.9;            // of the best value, for placements that are simpler
constexpr double kNearlyAll = 0.9;       // of the requests
constexpr int kFastestUpTo = 1024;       // devices: nobody has more for one user

// By devices: searches beside the first, the ratio of the limits that layouts are judged under
// again, how many layouts are, placements that get latencies, whether what is plain is judged under
// every limit, and whether these searches bound what they find.
struct Effort {
  int searches = 0;
  double ratio = 1;
  size_t layouts = 0, predicted = 0;
  bool plain_everywhere = false;
  bool bounds = false;
};

Effort EffortFor(int devices) {
  constexpr int kFew = 16, kSome = 64;
  if (devices <= kFew) return {5, 1.12, 16, 24, true, true};
  if (devices <= kSome) return {3, 1.19, 8, 16, false, false};
  return {1, 1.41, 3, 8, false, true};
}

// While all decode that may, mean over what replicas decode.
double MeanFullTpot(const Placement& placement) {
  double sum = 0, rate = 0;
  for (const Share& share : placement.shares) {
    sum += share.requests_per_second *
           placement.replicas[static_cast<size_t>(share.decode)].rate.tpot_seconds;
    rate += share.requests_per_second;
  }
  return rate > 0 ? sum / rate : 0;
}

bool Serves(const absl::StatusOr<Placement>& placement) {
  return placement.ok() && placement->requests_per_second >= kMinRequestsPerSecond;
}

// Where some wait without end: the mean TTFT of nearly all requests, as the formula may be wrong of
// the few others, which a router sends elsewhere. Infinite where they are more.
double MostTtft(const Placement& placement, const v1::DeploymentPlan& predicted) {
  double sum = 0, rate = 0;
  for (const Share& share : placement.shares) {
    const double ttft =
        predicted.replicas(share.prefill).prediction().time_to_first_token_seconds();
    if (ttft <= 0) continue;
    sum += share.requests_per_second * ttft;
    rate += share.requests_per_second;
  }
  return rate >= kNearlyAll * placement.requests_per_second ? sum / rate : kUnlimited;
}

struct Latencies {
  double ttft_seconds = 0, tpot_seconds = 0;
  v1::Prediction prediction;
};

Latencies LatenciesAt(const PlacementProblem& problem, const Placement& placement, double load) {
  v1::DeploymentPlan scratch;
  const LengthMoments lengths = MomentsOf(problem.samples);
  std::map<std::string, v1::Replica> known;  // large clusters have many replicas that are alike
  for (const PlacedReplica& placed : placement.replicas) {
    const ReplicaSpec spec = SpecOf(problem, placed);
    const auto [like, fresh] = known.try_emplace(
        AlikeKey(spec) + absl::StrFormat("|%.17g", placed.rate.requests_per_second));
    if (fresh) {
      like->second.set_max_batched_tokens(
          StepBudget(*problem.model, spec, lengths, problem.options, placed.rate));
      like->second.set_max_sequences(SequenceBudget(lengths, problem.options, spec, placed.rate));
    }
    *scratch.add_replicas() = like->second;
  }
  const bool end = PredictLatencies({&problem, &placement, load}, &scratch);
  const v1::Prediction& prediction = scratch.prediction();
  return {end ? prediction.time_to_first_token_seconds() : MostTtft(placement, scratch),
          prediction.time_per_output_token_seconds(), prediction};
}

class Finder {
 public:
  Finder(const PlacementProblem& problem, const Preference& preference, const Search& search,
         const CandidateOptions& options)
      : problem_(problem),
        preference_(preference),
        search_(search),
        options_(options),
        effort_(EffortFor(problem.graph->devices())),
        limit_(problem.options.max_tpot_seconds) {
    if (options.max_searches > 0) effort_.searches = options.max_searches;
  }

  absl::StatusOr<Candidates> Run() {
    const double first_limit = preference_.only_tpot_seconds.value_or(limit_);
    absl::StatusOr<Placement> first = SearchUnder(first_limit, !options_.rough_first);
    const bool missed = !Serves(first) && std::isfinite(first_limit) && preference_.nearest;
    if (missed) first = SearchUnder(kUnlimited);
    if (!Serves(first)) return first.ok() ? NothingServes() : first.status();
    const double top = LongestTpot(*first);
    const bool unlimited = std::isinf(first_limit) || missed;
    Collect(*std::move(first), unlimited ? kUnlimited : first_limit);
    if (unlimited) most_ = pool_.front();
    const double full = preference_.full_tpot_seconds;
    if (missed) {
      Explore(limit_, top, true);
    } else if (!preference_.only_tpot_seconds && (full > 0 || WeighsTtft())) {
      constexpr double kTighter = 3;  // layouts with short waits are found below long TPOT
      Explore(full > 0 ? full : top / kTighter, top, false);
    }
    if (!unlimited && options_.tell_most && !preference_.only_tpot_seconds) SearchMost();
    AddMixed(first_limit);
    if (options_.fastest && problem_.graph->devices() <= kFastestUpTo) AddFastest();
    return Evaluated();
  }

 private:
  bool WeighsTtft() const {
    return preference_.full_ttft_seconds > 0 ||
           std::any_of(problem_.classes.begin(), problem_.classes.end(), [](const auto& one) {
             return std::isfinite(one.limits.ttft_seconds) ||
                    std::isfinite(one.limits.end_to_end_seconds);
           });
  }

  static absl::Status NothingServes() {
    return absl::ResourceExhaustedError("no placement serves requests");
  }

  absl::StatusOr<Placement> SearchUnder(double limit, bool bound = true) {
    PlacementProblem problem = UnderTpot(problem_, limit);
    problem.bound = bound && options_.bound && problem.bound;
    problem.prove = bound && options_.bound && problem.prove;
    if (!bound) problem.search_options[kRoughSearch] = 1;  // the one at the limit taken is not
    absl::StatusOr<Placement> found = search_(problem);
    if (!found.ok()) return found;
    Placement about;
    about.upper_bound = found->upper_bound;
    about.proved = found->proved;
    about.interrupted = found->interrupted;
    about.notes = found->notes;
    about.shadow_prices = found->shadow_prices;
    about.evaluations = found->evaluations;
    about.requests_per_second = found->requests_per_second;
    searched_.push_back({std::move(about), limit, {}});
    return found;
  }

  void SearchMost() {
    constexpr int kUpTo = 64;  // devices, above which nobody waits for another search
    if (problem_.watch.Stopped() || problem_.graph->devices() > kUpTo) return;
    absl::StatusOr<Placement> found = SearchUnder(kUnlimited);
    if (found.ok()) most_ = CandidatePlacement{*std::move(found), kUnlimited, {}};
  }

  // Where a rate is asked for, all of them are candidates.
  void AddFastest() {
    if (problem_.watch.Stopped()) return;
    std::vector<Placement> found =
        FastestPlacements(UnderTpot(problem_, kUnlimited), options_.mixed ? &Pipelines() : nullptr);
    if (found.empty()) return;
    fastest_ = CandidatePlacement{found.front(), kUnlimited, {}};
    if (preference_.asked_requests_per_second <= 0) return;
    for (Placement& one : found) Add(std::move(one), limit_);
  }

  // Stages over unlike devices, which searches do not build: of each set of devices, as one stage
  // or several, what serves most, with and without a limit of TPOT; and the best beside what serves
  // most on the devices that it leaves.
  void AddMixed(double limit) {
    constexpr int kUpTo = 64;  // devices
    if (!options_.mixed || problem_.graph->devices() > kUpTo) return;
    const PlacementProblem problem = UnderTpot(problem_, limit);
    ReplicaJudge judge(problem);
    std::map<std::vector<int>, Placement> of_devices;
    std::vector<PlacedReplica> replicas = MixedReplicas(problem);
    replicas.insert(replicas.end(), Pipelines().begin(), Pipelines().end());
    for (const PlacedReplica& replica : replicas) {
      if (problem_.watch.Stopped()) return;
      absl::StatusOr<Placement> one = Assemble(problem, {replica}, &judge);
      if (!Serves(one) || !HasMixedStage(*one)) continue;
      std::vector<int> used = DevicesByPool(replica.stages, problem_.graph->pools().size());
      used.push_back(static_cast<int>(replica.stages.size()));
      Placement& best = of_devices[used];
      if (one->requests_per_second > best.requests_per_second) best = *std::move(one);
    }
    std::map<bool, const Placement*> most;  // of one stage, of several
    for (auto& [used, placement] : of_devices) {
      const double full = preference_.full_tpot_seconds;
      for (const double tpot : {full, 2 * full}) {
        if (full <= 0 || !(tpot < std::min(limit, LongestTpot(placement)))) continue;
        absl::StatusOr<Placement> within = Assemble(UnderTpot(problem_, tpot), placement.replicas);
        if (Serves(within)) Add(*std::move(within), tpot);
      }
      const Placement*& so_far = most[used.back() > 1];
      if (so_far == nullptr || placement.requests_per_second > so_far->requests_per_second)
        so_far = &placement;
      Add(placement, limit);
    }
    for (const auto& [several, placement] : most) AddBeside(*placement, limit);
  }

  const std::vector<PlacedReplica>& Pipelines() {
    if (!pipelines_) pipelines_ = MixedPipelines(problem_);
    return *pipelines_;
  }

  void AddBeside(const Placement& placement, double limit) {
    DeviceCounts rest = AllDevices(problem_);
    const std::vector<int> used =
        DevicesByPool(placement.replicas.front().stages, problem_.graph->pools().size());
    for (size_t p = 0; p < rest.size(); ++p) rest[p] -= used[p];
    if (std::all_of(rest.begin(), rest.end(), [](int count) { return count == 0; })) return;
    const std::optional<CandidatePlacement> others = OnPart(rest, limit);
    if (!others) return;
    std::vector<PlacedReplica> replicas = placement.replicas;
    replicas.insert(replicas.end(), others->placement.replicas.begin(),
                    others->placement.replicas.end());
    absl::StatusOr<Placement> both = Assemble(UnderTpot(problem_, limit), std::move(replicas));
    if (Serves(both)) Add(*std::move(both), limit);
  }

  void Add(Placement placement, double limit) {
    if (!(placement.requests_per_second > 0)) return;
    placement.alternatives.clear();
    // All but the one that serves most keep a limit, which bounds them more closely than none.
    if (std::isinf(limit) && !pool_.empty()) limit = kRoomForSteps * LongestTpot(placement);
    pool_.push_back({std::move(placement), limit, {}});
  }

  // What the search found, and what is plain.
  void Collect(Placement found, double limit) {
    std::vector<Placement> others = std::exchange(found.alternatives, {});
    const auto keep = [&](Placement placement) {
      if (layouts_.size() < 4 * effort_.layouts)
        layouts_.try_emplace(LayoutKey(placement), placement.replicas);
      Add(std::move(placement), limit);
    };
    keep(std::move(found));
    for (Placement& other : others) keep(std::move(other));
    const bool wanted = (preference_.simpler_within > 0 || options_.plain) &&
                        problem_.graph->devices() <= kPlainUpTo;
    if (!wanted || problem_.watch.Stopped() || (plain_ && !effort_.plain_everywhere)) return;
    plain_ = true;
    const PlacementProblem problem = UnderTpot(problem_, limit);
    ReplicaJudge judge(problem);
    for (Placement& plain : JudgedPlain(problem, &judge)) Add(std::move(plain), limit);
  }

  // Searches under limits from `low` to below `top`; then every layout under more of them.
  void Explore(double low, double top, bool above_low) {
    constexpr double kApart = 1.05, kStep = 1.41;
    if (!(top > low * kApart)) return;
    const double wide = std::log(top / low);
    const int steps =
        std::clamp(static_cast<int>(std::ceil(wide / std::log(kStep))), 1, effort_.searches);
    plain_ = false;
    for (int k = above_low ? 1 : 0; k < steps + (above_low ? 1 : 0); ++k) {
      if (problem_.watch.Stopped()) break;
      const double limit = low * std::exp(wide * k / (steps + (above_low ? 1 : 0)));
      absl::StatusOr<Placement> found = SearchUnder(limit, effort_.bounds);
      if (Serves(found)) Collect(*std::move(found), limit);
    }
    const int between = std::max(1, static_cast<int>(std::ceil(wide / std::log(effort_.ratio))));
    for (int k = above_low ? 1 : 0; k < between && !problem_.watch.Stopped(); ++k) {
      const double limit = low * std::exp(wide * k / between);
      const PlacementProblem problem = UnderTpot(problem_, limit);
      ReplicaJudge judge(problem);
      size_t judged = 0;
      for (const auto& [key, replicas] : layouts_) {
        if (++judged > effort_.layouts) break;
        absl::StatusOr<Placement> placement = Assemble(problem, replicas, &judge);
        if (Serves(placement)) Add(*std::move(placement), limit);
      }
    }
  }

  // A value by capacity alone, without TTFT.
  double RoughValue(const CandidatePlacement& one) const {
    PlanFigures rough;
    rough.requests_per_second = one.placement.requests_per_second;
    rough.tpot_seconds = MeanFullTpot(one.placement);
    MissedLimits missed;
    missed.Add(v1::LATENCY_LIMIT_TPOT, limit_, LongestTpot(one.placement));
    rough.missed = missed.all();
    return ValueOf(rough, preference_);
  }

  // The most valuable, of each layout those under two limits, and the best of each number of
  // stages.
  std::vector<size_t> Shortlist() const {
    std::vector<double> values;
    for (const CandidatePlacement& one : pool_) values.push_back(RoughValue(one));
    std::vector<size_t> order(pool_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return values[a] > values[b]; });
    constexpr int kOfLayout = 2;
    std::map<std::string, int> seen;
    std::map<int, int> by_stages;
    std::vector<size_t> listed;
    for (const size_t i : order) {
      if (++seen[LayoutKey(pool_[i].placement)] > kOfLayout) continue;
      const bool simple = values[i] >= kNear * values[order.front()] &&
                          ++by_stages[MaxStages(pool_[i].placement)] <= kOfLayout;
      if (listed.size() < effort_.predicted || simple) listed.push_back(i);
    }
    return listed;
  }

  // Into the list, where a rate is asked for: of those that sustain it the soonest alone.
  void ListSoonest(std::vector<size_t>* listed) const {
    if (preference_.asked_requests_per_second <= 0) return;
    std::vector<std::pair<double, size_t>> soonest;
    std::map<std::string, int> seen;
    for (size_t i = 0; i < pool_.size(); ++i) {
      PlanFigures figures;
      figures.requests_per_second = pool_[i].placement.requests_per_second;
      if (!Sustains(figures, preference_) || ++seen[LayoutKey(pool_[i].placement)] > 1) continue;
      soonest.emplace_back(TimesAlone(problem_, pool_[i].placement).answer_seconds, i);
    }
    std::sort(soonest.begin(), soonest.end());
    if (soonest.size() > effort_.predicted) soonest.resize(effort_.predicted);
    for (const auto& [seconds, i] : soonest) {
      if (std::find(listed->begin(), listed->end(), i) == listed->end()) listed->push_back(i);
    }
  }

  void Predict(CandidatePlacement* one) const {
    one->predicted =
        PredictedFigures(UnderTpot(problem_, one->max_tpot_seconds), one->placement, limit_);
  }

  Candidates Evaluated() {
    Candidates out;
    out.searched = std::move(searched_);
    std::vector<size_t> listed = Shortlist();
    ListSoonest(&listed);
    for (const size_t i : listed) out.placements.push_back(pool_[i]);
    double idle = kUnlimited;
    for (CandidatePlacement& one : out.placements) {
      Predict(&one);
      if (preference_.full_ttft_seconds <= 0) continue;
      const PlacementProblem problem = UnderTpot(problem_, one.max_tpot_seconds);
      idle = std::min(idle, LatenciesAt(problem, one.placement, kIdleLoad).ttft_seconds);
    }
    if (preference_.full_ttft_seconds > 0) {
      out.full_ttft_seconds =
          std::max(preference_.full_ttft_seconds, std::isfinite(idle) ? kMinTtftRatio * idle : 0);
    }
    Preference preference = preference_;
    preference.full_ttft_seconds = out.full_ttft_seconds;
    Sort(preference, &out.placements);
    if (preference_.simpler_within > 0) {
      AddApart(out.placements.front(), &out.placements);
      Sort(preference, &out.placements);
    }
    if (most_) Predict(&out.most.emplace(*std::move(most_)));
    if (fastest_) Predict(&out.fastest.emplace(*std::move(fastest_)));
    return out;
  }

  static void Sort(const Preference& preference, std::vector<CandidatePlacement>* all) {
    const auto rank = [&](const CandidatePlacement& one) {
      return std::tuple(one.predicted.missed.empty(), Sustains(one.predicted, preference),
                        ValueOf(one.predicted, preference));
    };
    std::stable_sort(all->begin(), all->end(),
                     [&](const auto& a, const auto& b) { return rank(a) > rank(b); });
  }

  // Where `best` stops when a machine is lost: what that machine and the others do by themselves.
  void AddApart(const CandidatePlacement& best, std::vector<CandidatePlacement>* all) const {
    const PlacementProblem problem = UnderTpot(problem_, best.max_tpot_seconds);
    if (problem.graph->machines().size() < 2 || problem.graph->devices() > kLossesUpTo ||
        problem_.watch.Stopped())
      return;
    const std::vector<MachineLoss> losses = LossesOf(problem, best.placement);
    if (losses.empty() ||
        losses.front().requests_per_second > kServesOn * best.placement.requests_per_second)
      return;
    const DeviceCounts every = AllDevices(problem);
    const DeviceCounts alone = OfMachine(problem, every, losses.front().machine);
    DeviceCounts rest = every;
    for (size_t p = 0; p < rest.size(); ++p) rest[p] -= alone[p];
    const std::optional<CandidatePlacement> one = OnPart(alone, best.max_tpot_seconds);
    // Long pipelines over small machines may need more time than those of a large one; what they
    // serve is little, so the mean TPOT stays.
    constexpr int kRounds = 10;
    constexpr double kStep = 1.3;
    std::optional<CandidatePlacement> others;
    double limit = best.max_tpot_seconds;
    for (int round = 0; round < kRounds && !others && limit <= limit_; ++round, limit *= kStep)
      others = OnPart(rest, limit);
    if (!others) return;
    CandidatePlacement& added = all->emplace_back(*std::move(others));
    if (one) Join(*one, &added);
    Predict(&added);
  }

  // The best on these devices alone; none: they do not serve.
  std::optional<CandidatePlacement> OnPart(const DeviceCounts& part, double limit) const {
    PlacementProblem problem = UnderTpot(problem_, limit);
    problem.bound = false;
    PartSearch search(problem, search_, 1, problem.graph->devices());
    absl::StatusOr<Placement> found = search.On(part);
    if (!found.ok()) return std::nullopt;
    absl::StatusOr<Placement> placement = Assemble(problem, found->replicas);
    if (!Serves(placement)) return std::nullopt;
    return CandidatePlacement{*std::move(placement), limit, {}};
  }

  // Adds a placement on other machines, each replica with the rate that it was judged to have.
  static void Join(const CandidatePlacement& one, CandidatePlacement* into) {
    const int first = static_cast<int>(into->placement.replicas.size());
    for (const PlacedReplica& replica : one.placement.replicas)
      into->placement.replicas.push_back(replica);
    for (Share share : one.placement.shares) {
      share.prefill += first;
      share.decode += first;
      into->placement.shares.push_back(share);
    }
    into->placement.requests_per_second += one.placement.requests_per_second;
    into->placement.usd_per_hour += one.placement.usd_per_hour;
    into->max_tpot_seconds = std::max(into->max_tpot_seconds, one.max_tpot_seconds);
  }

  const PlacementProblem& problem_;
  const Preference& preference_;
  const Search& search_;
  const CandidateOptions& options_;
  Effort effort_;
  const double limit_;  // of the workload; infinite: none
  std::vector<CandidatePlacement> pool_;
  std::map<std::string, std::vector<PlacedReplica>> layouts_;  // that the search found
  std::optional<CandidatePlacement> most_, fastest_;
  std::optional<std::vector<PlacedReplica>> pipelines_;  // over unlike devices
  bool plain_ = false;                                   // what is plain was judged
  std::vector<CandidatePlacement> searched_;
};

}  // namespace

absl::StatusOr<Candidates> FindCandidates(const PlacementProblem& problem,
                                          const Preference& preference, const Search& search,
                                          const CandidateOptions& options) {
  return Finder(problem, preference, search, options).Run();
}

PlacementProblem UnderTpot(const PlacementProblem& problem, double max_tpot_seconds) {
  PlacementProblem under = problem;
  under.options.max_tpot_seconds = max_tpot_seconds;
  return under;
}

PlanFigures PredictedFigures(const PlacementProblem& problem, const Placement& placement,
                             double workload_tpot_seconds) {
  const Latencies at =
      LatenciesAt(problem, placement, ToldLoad(problem, placement.requests_per_second));
  PlanFigures figures;
  figures.requests_per_second = placement.requests_per_second;
  figures.ttft_seconds = at.ttft_seconds;
  figures.tpot_seconds = at.tpot_seconds;
  figures.alone_seconds = TimesAlone(problem, placement).answer_seconds;
  MissedLimits missed;
  missed.Add(v1::LATENCY_LIMIT_TPOT, workload_tpot_seconds, LongestTpot(placement));
  const auto mean = [](double seconds) { return seconds > 0 ? seconds : kUnlimited; };
  for (const v1::ClassPrediction& one : at.prediction.classes()) {
    const v1::ServiceObjectives& limits = one.objectives();
    missed.Add(v1::LATENCY_LIMIT_TTFT, limits.time_to_first_token_seconds(),
               mean(one.time_to_first_token_seconds()));
    missed.Add(v1::LATENCY_LIMIT_END_TO_END, limits.end_to_end_seconds(),
               mean(one.end_to_end_seconds()));
  }
  figures.missed = missed.all();
  return figures;
}

double ToldLoad(const PlacementProblem& problem, double requests_per_second) {
  const double asked = problem.required_requests_per_second;
  return asked > 0 && asked < requests_per_second ? asked / requests_per_second : kUsualLoad;
}

std::string LayoutKey(const Placement& placement) {
  std::vector<std::string> replicas;
  for (const PlacedReplica& one : placement.replicas) {
    std::string& key = replicas.emplace_back(absl::StrFormat("%d", static_cast<int>(one.role)));
    for (const LayoutStage& stage : one.stages) {
      absl::StrAppendFormat(&key, ",%d", stage.layers);
      ForEachPart(stage, [&](const LayoutPart& part) {
        absl::StrAppendFormat(&key, ":%d:%d", part.pool, part.width);
      });
      if (stage.mix == nullptr) continue;
      for (const double fraction : stage.mix->fractions)
        absl::StrAppendFormat(&key, ":%.3f", fraction);
    }
  }
  std::sort(replicas.begin(), replicas.end());
  std::string all;
  for (const std::string& one : replicas) all += one + "|";
  return all;
}

double LongestTpot(const Placement& placement) {
  double longest = 0;
  for (const PlacedReplica& one : placement.replicas)
    longest = std::max(longest, one.rate.tpot_seconds);
  return longest;
}

double LeftAfterLoss(const PlacementProblem& problem, const Placement& placement) {
  if (problem.graph->devices() > kLossesUpTo) return 0;
  const std::vector<MachineLoss> losses = LossesOf(problem, placement);
  return losses.empty() ? 0 : losses.front().requests_per_second;
}

}  // namespace tessera::scheduler
