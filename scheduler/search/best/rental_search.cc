#include "scheduler/search/best/rental_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "scheduler/search/best/configuration_program.h"
#include "scheduler/search/best/rental_offers.h"
#include "scheduler/search/best/rental_sets.h"
#include "scheduler/search/layout/assemble.h"

namespace tessera::scheduler {
namespace {

constexpr size_t kMaxSets = 200;       // whose throughput is estimated
constexpr int kSetNodes = 200000;      // of looking for them
constexpr int kMaxPlans = 48;          // of one budget
constexpr int kMaxPlansOfStep = 6;     // of one on the way up to a budget that is enough
constexpr int kMaxPlansInAll = 96;     // for the least price
constexpr int64_t kMaxDevices = 1200;  // of all plans together, the first aside
constexpr double kDoubt = 1.2;         // a set may serve more than it promises: columns are missing
constexpr int kMaxDoubtful = 8;        // sets that promise too little, and are planned all the same
// The number of planned sets after which what they served says how far promises can be trusted.
constexpr int kEnoughSeen = 6;
constexpr double kMoreThanSeen = 1.02;
constexpr double kStep = 1.03;  // from one budget to the next
constexpr int kHalvings = 20;
constexpr double kRounding = 1e-9;
constexpr double kAsked = 1 - 1e-6;
constexpr double kBetter = 1 + 1e-7;
constexpr double kBoundGap = 0.02;
constexpr int kMaxGenerated = 24;  // rounds of columns
constexpr int kBoundBoxes = 20000;
constexpr int kQuickBoxes = 800;

class RentalSearch {
 public:
  RentalSearch(const PlacementProblem& problem, const Search& planner)
      : problem_(problem),
        planner_(planner),
        offers_(*problem.graph),
        shapes_(*problem.model, MomentsOf(problem.samples), problem.options),
        classes_(*problem.graph, AllDevices(*problem.graph)),
        within_(problem) {
    within_.goal = Goal::kBudget;
    for (const RentalOffer& offer : offers_.all())
      everything_ += offer.prices.empty() ? offer.available * offer.usd_per_hour
                                          : offer.prices[static_cast<size_t>(offer.available)];
  }

  ClassSearchResult Run() {
    ClassSearchResult result;
    ConfigurationProgram program(within_, classes_, &shapes_);
    program_ = &program;
    if (problem_.goal == Goal::kBudget) {
      program.Generate(
          {RolesOf(problem_), kBoundGap, kMaxGenerated, kBoundBoxes, 0, problem_.bound});
      if (problem_.bound && std::isfinite(program.bound())) result.upper_bound = program.bound();
      Within(within_.budget_usd_per_hour, kUnbounded, kMaxPlans);
    } else {
      Cheapest();
    }
    if (!best_) return result;
    Describe();
    result.placement = std::move(best_);
    return result;
  }

 private:
  static std::vector<int> AllDevices(const ClusterGraph& graph) {
    std::vector<int> all;
    for (const DevicePool& pool : graph.pools()) all.push_back(pool.count);
    return all;
  }

  // The relaxed program within so much money.
  double Relaxed(double budget) {
    within_.budget_usd_per_hour = budget;
    return program_->Relax(RolesOf(problem_));
  }

  void Cheapest() {
    const double need = problem_.required_requests_per_second;
    within_.budget_usd_per_hour = everything_;
    program_->Generate({RolesOf(problem_), kBoundGap, kMaxGenerated, kQuickBoxes, 0, false});
    const double most = program_->value();
    if (most <= 0) return;
    // What is served grows ever slower with the money, so that this is enough for the relaxation;
    // columns that save money are made here.
    within_.budget_usd_per_hour = everything_ * std::min(1.0, need / most);
    program_->Generate({RolesOf(problem_), kBoundGap, 2 * kMaxGenerated, kQuickBoxes, 0, false});
    double low = 0, high = everything_;
    for (int i = 0; i < kHalvings && high > low; ++i) {
      const double middle = (low + high) / 2;
      (Relaxed(middle) >= need ? high : low) = middle;
    }
    double budget = high;
    while (!Within(budget, need, kMaxPlansOfStep)) {
      if (budget >= everything_ || problem_.watch.Stopped()) return;
      budget = left_ > 0 ? std::min(everything_, budget * kStep) : everything_;
    }
    while (!problem_.watch.Stopped() && left_ > 0 &&
           Within(best_->usd_per_hour * (1 - kRounding), need, left_)) {
    }
  }

  // Plans what promises most for the money; true: what was asked for is served, by a plan that is
  // better than the best.
  bool Within(double budget, double asked, int most_plans) {
    Relaxed(budget);
    const std::vector<double> by_class = program_->device_worths();
    std::vector<double> worths(problem_.graph->pools().size(), 0);
    for (int c = 0; c < classes_.size(); ++c) {
      for (const int pool : classes_[c].pools)
        worths[static_cast<size_t>(pool)] = by_class[static_cast<size_t>(c)];
    }
    std::vector<RentalItem> items;
    for (const RentalOffer& offer : offers_.all())
      items.push_back(
          {offers_.WorthOf(offer, worths), offer.usd_per_hour, offer.available, offer.prices});
    std::vector<std::pair<double, std::vector<int>>> sets;  // with what they promise, negated
    for (const RentalSets::Set& set : MostWorth(items, budget, kMaxSets, kSetNodes).best) {
      std::vector<int> devices = offers_.Devices(set.counts);
      const double promise = Promise(devices);
      if (promise > 0) sets.emplace_back(-promise, std::move(devices));
    }
    std::stable_sort(sets.begin(), sets.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    int doubtful = 0;
    for (const auto& [promise, devices] : sets) {
      const double at_most = -promise * MostOfPromise();
      const bool enough =
          asked == kUnlimited ? !best_ || at_most > best_->requests_per_second : at_most >= asked;
      if ((!enough && (Trusts() || ++doubtful > kMaxDoubtful)) || most_plans <= 0) break;
      if (best_ && (problem_.watch.Stopped() || left_devices_ <= 0)) break;
      if (!planned_.contains(devices)) --most_plans;
      if (Plan(devices, -promise, budget, asked)) return true;
    }
    return false;
  }

  bool Trusts() const { return seen_ >= kEnoughSeen; }

  // How much more than it promises a set may serve.
  double MostOfPromise() const { return Trusts() ? most_of_promise_ * kMoreThanSeen : kDoubt; }

  double Promise(const std::vector<int>& devices) const {
    std::vector<int> by_class(static_cast<size_t>(classes_.size()), 0);
    for (int c = 0; c < classes_.size(); ++c) {
      for (const int pool : classes_[c].pools)
        by_class[static_cast<size_t>(c)] += devices[static_cast<size_t>(pool)];
    }
    return program_->ServedBy(by_class, RolesOf(problem_));
  }

  // As a cluster of its own. True: asked for, and served.
  bool Plan(const std::vector<int>& devices, double promise, double budget, double asked) {
    auto [known, fresh] = planned_.try_emplace(devices);
    if (fresh) {
      problem_.watch.Report(absl::StrFormat("sets of machines planned: %d", planned_.size()));
      --left_;
      left_devices_ -= std::accumulate(devices.begin(), devices.end(), int64_t{0});
      known->second = PlannedOn(devices);
      if (known->second) {
        ++seen_;
        most_of_promise_ = std::max(most_of_promise_, known->second->requests_per_second / promise);
      }
    }
    const std::optional<Placement>& placement = known->second;
    if (!placement || placement->usd_per_hour > budget * (1 + kRounding)) return false;
    if (asked == kUnlimited) {
      if (!best_ || placement->requests_per_second > best_->requests_per_second * kBetter)
        best_ = placement;
      return false;
    }
    if (placement->requests_per_second < asked * kAsked) return false;
    if (best_ && placement->usd_per_hour >= best_->usd_per_hour) return false;
    best_ = placement;
    return true;
  }

  std::optional<Placement> PlannedOn(const std::vector<int>& devices) const {
    std::vector<int> kept;
    const ClusterGraph part = problem_.graph->Part(devices, &kept);
    PlacementProblem alone = problem_;
    alone.graph = &part;
    alone.goal = Goal::kThroughput;
    alone.prove = false;
    alone.bound = false;
    const absl::StatusOr<Placement> found = planner_(alone);
    if (!found.ok()) return std::nullopt;
    std::optional<Placement> placement = OnAll(*found, kept);
    if (!placement) return std::nullopt;
    placement->notes = found->notes;
    for (const Placement& other : found->alternatives) {
      if (std::optional<Placement> alternative = OnAll(other, kept))
        placement->alternatives.push_back(*std::move(alternative));
    }
    return placement;
  }

  // The same on the whole cluster's pools.
  std::optional<Placement> OnAll(const Placement& found, const std::vector<int>& kept) const {
    std::vector<PlacedReplica> replicas = found.replicas;
    for (PlacedReplica& replica : replicas) {
      for (LayoutStage& stage : replica.stages) stage.pool = kept[static_cast<size_t>(stage.pool)];
    }
    absl::StatusOr<Placement> placement = Assemble(problem_, std::move(replicas));
    if (!placement.ok()) return std::nullopt;
    return *std::move(placement);
  }

  void Describe() {
    best_->notes.emplace_back().set_rental_sets(static_cast<int>(planned_.size()));
    best_->evaluations = static_cast<int64_t>(planned_.size());
    best_->interrupted = problem_.watch.Stopped();
    best_->shadow_prices.assign(problem_.graph->pools().size(), 0);
    for (int c = 0; c < classes_.size(); ++c) {
      for (const int pool : classes_[c].pools) {
        best_->shadow_prices[static_cast<size_t>(pool)] =
            program_->device_prices()[static_cast<size_t>(c)];
      }
    }
  }

  static constexpr double kUnlimited = kUnbounded;

  const PlacementProblem& problem_;
  const Search& planner_;
  const RentalOffers offers_;
  StageShapes shapes_;
  const DeviceClasses classes_;
  PlacementProblem within_;  // the same within a budget
  double everything_ = 0;    // what all that is offered costs
  ConfigurationProgram* program_ = nullptr;
  std::map<std::vector<int>, std::optional<Placement>> planned_;  // by devices per pool
  std::optional<Placement> best_;
  int seen_ = 0;                // sets that serve something
  double most_of_promise_ = 1;  // that one of them served
  int left_ = kMaxPlansInAll;
  int64_t left_devices_ = kMaxDevices;
};

}  // namespace

ClassSearchResult SearchRentals(const PlacementProblem& problem, const Search& planner) {
  return RentalSearch(problem, planner).Run();
}

}  // namespace tessera::scheduler
