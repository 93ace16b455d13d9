#include "scheduler/search/best/class_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_format.h"
#include "scheduler/search/best/class_placement.h"
#include "scheduler/search/best/configuration_program.h"
#include "scheduler/search/best/placement_moves.h"
#include "scheduler/search/best/split_placement.h"
#include "scheduler/search/layout/assemble.h"

namespace tessera::scheduler {
namespace {

constexpr int kWholeUpTo = 100;   // devices that are planned by branch and bound at once
constexpr int kEscapeUpTo = 72;   // devices whose replicas are moved also where that loses at first
constexpr int kMoveUpTo = 20000;  // devices whose replicas are improved by moves
constexpr int64_t kJudgedPerDevice = 200;  // sets of stages, in moves after planning
constexpr int64_t kMaxJudged = 400000;
constexpr int64_t kMaxJudgedOfFew = 20000;
constexpr int64_t kFewerJudged = 8;  // times fewer, where the search is rough
constexpr int kMaxRounds = 12;       // of planning what is left
constexpr double kMinPart = 0.5;     // of a column's rate that must be left on real links
constexpr double kBoundGap = 0.02;   // between bound and relaxation
constexpr double kSmallBoundGap = 0.035;
constexpr int kBoundBoxes = 20000;
constexpr int kLastBoxes = 60000;             // where there are many devices
constexpr int64_t kBoundBoxesInAll = 200000;  // and before the last
constexpr size_t kColumnsOfPricing = 20;
constexpr int kAllColumnsUpTo = 20000;  // devices whose columns are all kept
constexpr int kMaxGenerated = 24;       // rounds of columns
constexpr double kRestGap = 0.03;
constexpr size_t kColumnsTaken = 600;  // from the program of all groups, to plan a part
constexpr int kRestRounds = 8;
constexpr int kRestBoxes = 2000;
constexpr int kQuickRounds = 4;
constexpr int kQuickBoxes = 100;
constexpr double kPackingGap = 1e-4;
constexpr int kPackingNodes = 2000;
constexpr int kRestNodes = 200;
constexpr int kPartNodes = 2000;             // of a part of many devices
constexpr int kMaxCheaper = 16;              // rounds of planning within less money
constexpr double kCheaper = 1 - 1e-3;        // of what the cheapest placement known costs
constexpr double kEnough = 1.02;             // of money in proportion to the rate: likely to do
constexpr double kWorthLeaping = 0.98;       // of the money of a small step
constexpr double kSplitWorthTrying = 1.002;  // of the relaxation without splitting

class ClassSearch {
 public:
  explicit ClassSearch(const PlacementProblem& problem)
      : problem_(problem),
        rough_(problem.search_options.contains(kRoughSearch)),
        shapes_(*problem.model, MomentsOf(problem.samples), problem.options) {
    for (const DevicePool& pool : problem.graph->pools()) all_.push_back(pool.count);
  }

  ClassSearchResult Run() {
    // Many devices are bounded as if they were in one group, and placed group by group.
    const bool merge = problem_.graph->devices() > kWholeUpTo && problem_.goal == Goal::kThroughput;
    const DeviceClasses classes(*problem_.graph, all_, merge);
    ConfigurationProgram program(problem_, classes, &shapes_);
    const bool many = problem_.graph->devices() > kWholeUpTo;
    program.Generate({RolesOf(problem_), many ? kBoundGap : kSmallBoundGap,
                      rough_ ? kQuickRounds : kMaxGenerated,
                      problem_.bound ? kBoundBoxes : kRestBoxes,
                      problem_.graph->devices() <= kAllColumnsUpTo ? size_t{0} : kColumnsOfPricing,
                      problem_.bound, many ? kLastBoxes : 0, many ? kBoundBoxesInAll : 0});
    if (problem_.goal == Goal::kPrice) program.GenerateByCost();
    ClassSearchResult result;
    if (problem_.goal != Goal::kPrice && std::isfinite(program.bound()))
      result.upper_bound = program.bound();
    const double split_value = program.value();
    const std::vector<double> prices = program.device_prices();
    const bool may_split = problem_.allow_split && problem_.graph->devices() <= kSplitUpTo;
    const bool try_split =
        may_split && split_value > kSplitWorthTrying * program.Relax(RolesWanted::kWhole);
    columns_ = merge ? &program : nullptr;
    std::optional<Placement> best = Planned(classes, program, false);
    std::optional<Placement> split = Split(classes, try_split, RateOf(best), &program);
    if (split) {
      best = TheBetter(std::move(best), std::move(split));
    } else if (best && may_split && !problem_.watch.Stopped()) {
      best->notes.push_back(LosingSplitNote(true, 0, 0));
    }
    if (!best) return result;
    best->shadow_prices.assign(all_.size(), 0);
    for (int c = 0; c < classes.size() && c < static_cast<int>(prices.size()); ++c) {
      for (const int pool : classes[c].pools)
        best->shadow_prices[static_cast<size_t>(pool)] = prices[static_cast<size_t>(c)];
    }
    best->interrupted = problem_.watch.Stopped();
    result.placement = std::move(best);
    return result;
  }

 private:
  bool Few() const { return problem_.graph->devices() <= kEscapeUpTo; }

  static double RateOf(const std::optional<Placement>& placement) {
    return placement ? placement->requests_per_second : 0;
  }

  bool Better(const Placement& a, const Placement& b) const {
    if (problem_.goal != Goal::kPrice) return a.requests_per_second > b.requests_per_second;
    const double need = problem_.required_requests_per_second * (1 - 1e-6);
    const bool a_serves = a.requests_per_second >= need, b_serves = b.requests_per_second >= need;
    return a_serves != b_serves ? a_serves : a.usd_per_hour < b.usd_per_hour;
  }

  // With replicas that only prefill or only decode. `promising`: the relaxation serves more with
  // them. None: it does not, or nothing was found.
  std::optional<Placement> Split(const DeviceClasses& classes, bool promising, double whole_rate,
                                 ConfigurationProgram* program) {
    if (!problem_.allow_split) return std::nullopt;
    std::optional<Placement> split;
    if (promising) {
      program->Relax(RolesWanted::kAll);
      split = Planned(classes, *program, true);
    }
    if (!Few() || problem_.goal != Goal::kThroughput) return split;
    // Whole numbers of columns of all roles leave prefill and decode unequal.
    if (program->Relax(RolesWanted::kSplit) > std::max(whole_rate, RateOf(split))) {
      std::optional<Placement> all = SplitPlacement(problem_);
      if (RateOf(all) > RateOf(split)) split = std::move(all);
    }
    if (promising && split) split = ImproveSplit(problem_, *std::move(split));
    return split;
  }

  std::optional<Placement> TheBetter(std::optional<Placement> whole,
                                     std::optional<Placement> split) const {
    if (!split) return whole;
    if (!whole) return split;
    const bool better = Better(*split, *whole);
    if (!Splits(*split)) {
      if (better) whole = std::move(split);
      if (!problem_.watch.Stopped()) whole->notes.push_back(LosingSplitNote(true, 0, 0));
      return whole;
    }
    Placement& winner = better ? *split : *whole;
    const Placement& loser = better ? *whole : *split;
    winner.notes.push_back(LosingSplitNote(!better, loser.requests_per_second, loser.usd_per_hour));
    winner.alternatives.push_back(loser);
    return std::move(winner);
  }

  std::optional<Placement> Planned(const DeviceClasses& classes,
                                   const ConfigurationProgram& program, bool split) {
    ClassPlacement at(problem_);
    const bool whole = problem_.graph->devices() <= kWholeUpTo || problem_.goal == Goal::kPrice;
    if (split || columns_ == nullptr) {
      PlaceCounts(classes, program,
                  whole ? program.Whole(split ? RolesWanted::kAll : RolesWanted::kWhole,
                                        kPackingGap, kPackingNodes)
                        : Floors(program),
                  &at);
    }
    if (problem_.goal != Goal::kPrice) {
      PlanRest(&at);
      if (problem_.graph->devices() <= kMoveUpTo) {
        PlacementMoves moves(problem_, &shapes_);
        const int64_t judged = std::min(kMaxJudged, kJudgedPerDevice * problem_.graph->devices());
        const int64_t wanted = Few() ? kMaxJudgedOfFew : rough_ ? judged / kFewerJudged : judged;
        moves.Improve(&at, wanted, Few() && !rough_);
      }
    }
    if (at.replicas().empty()) return std::nullopt;
    absl::StatusOr<Placement> placement = Assemble(problem_, at.replicas());
    if (!placement.ok()) return std::nullopt;
    return *std::move(placement);
  }

  static std::vector<int> Floors(const ConfigurationProgram& program) {
    std::vector<int> counts;
    for (const double share : program.shares())
      counts.push_back(static_cast<int>(std::floor(share + 1e-6)));
    return counts;
  }

  // Number of replicas that were placed.
  int PlaceCounts(const DeviceClasses& classes, const ConfigurationProgram& program,
                  const std::vector<int>& counts, ClassPlacement* at) const {
    int placed = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      for (int copy = 0; copy < counts[i]; ++copy) {
        if (!at->Place(classes, program.columns()[i], kMinPart)) break;
        ++placed;
      }
    }
    return placed;
  }

  // Plans the devices that are free and wanted; number of replicas placed.
  int PlanFree(const std::vector<bool>& wanted, ClassPlacement* at) {
    std::vector<int> free = at->free();
    double usable = 0;
    for (size_t p = 0; p < free.size(); ++p) {
      if (!wanted[p]) free[p] = 0;
      usable += free[p] * problem_.graph->pools()[p].spec->memory_bytes;
    }
    if (usable * problem_.options.memory.utilisation < TotalWeightBytes(*problem_.model)) {
      return 0;
    }
    const int devices = std::accumulate(free.begin(), free.end(), 0);
    const bool quick = Few();  // moves put right what that leaves
    const bool many = devices > kWholeUpTo && !problem_.watch.Stopped();
    const int nodes = many ? kPartNodes : kRestNodes;
    const DeviceClasses classes(*problem_.graph, free);
    PlacementProblem rest = problem_;
    if (problem_.goal == Goal::kBudget) {
      for (const PlacedReplica& replica : at->replicas()) {
        for (const LayoutStage& stage : replica.stages) {
          rest.budget_usd_per_hour -=
              stage.width *
              problem_.graph->pools()[static_cast<size_t>(stage.pool)].price_usd_per_hour;
        }
      }
      if (rest.budget_usd_per_hour <= 0) return 0;
    }
    ConfigurationProgram program(rest, classes, &shapes_);
    if (columns_ != nullptr) program.AddLike(*columns_, kColumnsTaken);
    program.Generate({RolesWanted::kWhole, kRestGap, quick ? kQuickRounds : kRestRounds,
                      quick ? kQuickBoxes : kRestBoxes, 0, false});
    return PlaceCounts(classes, program,
                       program.Whole(RolesWanted::kWhole, kPackingGap * 10, nodes), at);
  }

  void PlanRest(ClassPlacement* at) {
    const std::vector<DevicePool>& pools = problem_.graph->pools();
    const std::vector<MachineNode>& machines = problem_.graph->machines();
    const int groups = problem_.graph->groups() > 1 ? problem_.graph->groups() : 0;
    for (int g = 0; g <= groups; ++g) {
      std::vector<bool> wanted(pools.size(), true);
      for (size_t p = 0; p < pools.size() && g < groups; ++p)
        wanted[p] = machines[static_cast<size_t>(pools[p].machine)].group == g;
      // Who stops the search wants what its columns give: devices that are free serve nobody.
      for (int round = 0; round < (problem_.watch.Stopped() ? 1 : kMaxRounds); ++round) {
        problem_.watch.Report(absl::StrFormat("replicas placed: %d", at->replicas().size()));
        if (PlanFree(wanted, at) == 0) break;
      }
    }
  }

  const PlacementProblem& problem_;
  const bool rough_;
  StageShapes shapes_;
  std::vector<int> all_;
  const ConfigurationProgram* columns_ = nullptr;  // where planning of a part begins; or none
};

double PriceOfAll(const ClusterGraph& graph) {
  double usd = 0;
  for (const DevicePool& pool : graph.pools()) usd += pool.count * pool.price_usd_per_hour;
  return usd;
}

// The money for the next round. What serves more than is required leaps down in proportion, halfway
// back where less was futile, and takes small steps in the end; what misses it leaps up, then
// takes all there is. `best`: the cheapest known, or what misses, or null. `too_little_usd`: the
// most with which too little was served.
double NextBudget(const Placement* best, double need, double all_usd, double too_little_usd) {
  if (best == nullptr) return all_usd;
  const double in_proportion = kEnough * best->usd_per_hour * need / best->requests_per_second;
  if (best->requests_per_second < need)
    return too_little_usd > 0 ? all_usd : std::min(all_usd, in_proportion);
  const double step = best->usd_per_hour * kCheaper;
  const double leap = std::max(in_proportion, (too_little_usd + step) / 2);
  return leap < step * kWorthLeaping ? leap : step;
}

// The program for the least price counts columns, and whole ones leave more served than was asked,
// or too little where links take some. What is served for less money is planned with moves: as long
// as that is enough, it is the cheaper placement.
void Cheapen(const PlacementProblem& problem, std::optional<Placement>* best) {
  const double need = problem.required_requests_per_second * (1 - 1e-6);
  const auto serves = [&](const std::optional<Placement>& placement) {
    return placement && placement->requests_per_second >= need;
  };
  const double all_usd = PriceOfAll(*problem.graph);
  double too_little_usd = 0;
  PlacementProblem within = problem;
  within.goal = Goal::kBudget;
  for (int round = 0; round < kMaxCheaper && !problem.watch.Stopped(); ++round) {
    const double usd = NextBudget(*best ? &**best : nullptr, need, all_usd, too_little_usd);
    within.budget_usd_per_hour = usd;
    std::optional<Placement> found = ClassSearch(within).Run().placement;
    if (serves(found) && (!serves(*best) || found->usd_per_hour < (*best)->usd_per_hour)) {
      std::swap(*best, found);
      continue;
    }
    // Nothing less is left to try.
    if (usd >= (serves(*best) ? (*best)->usd_per_hour * kCheaper : all_usd)) break;
    too_little_usd = std::max(too_little_usd, usd);
  }
  if (*best && problem.watch.Stopped()) (*best)->interrupted = true;
}

}  // namespace

ClassSearchResult SearchByClass(const PlacementProblem& problem) {
  ClassSearchResult result = ClassSearch(problem).Run();
  if (problem.goal == Goal::kPrice && problem.graph->devices() <= kWholeUpTo)
    Cheapen(problem, &result.placement);
  return result;
}

ClassBound BoundByClass(const PlacementProblem& problem, double gap) {
  std::vector<int> all;
  for (const DevicePool& pool : problem.graph->pools()) all.push_back(pool.count);
  const DeviceClasses classes(*problem.graph, all);
  StageShapes shapes(*problem.model, MomentsOf(problem.samples), problem.options);
  ConfigurationProgram program(problem, classes, &shapes);
  program.Generate({RolesOf(problem), gap, kMaxGenerated, problem.bound ? kBoundBoxes : kQuickBoxes,
                    0, problem.bound});
  ClassBound result;
  if (problem.bound && std::isfinite(program.bound())) result.upper_bound = program.bound();
  for (size_t i = 0; i < program.shares().size(); ++i) {
    ClassPlacement at(problem);
    if (program.shares()[i] > 0 && at.Place(classes, program.columns()[i], kMinPart))
      result.replicas.push_back(at.replicas().front());
  }
  return result;
}

}  // namespace tessera::scheduler
