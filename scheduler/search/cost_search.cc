#include "scheduler/search/cost_search.h"

#include <algorithm>
#include <set>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

class CostSearch {
 public:
  CostSearch(const PlacementProblem& problem, const CostSearchOptions& options)
      : problem_(problem),
        options_(options),
        pools_(problem.graph->pools()),
        layouts_(problem, options.layouts) {}

  absl::StatusOr<Placement> Run() {
    for (const DevicePool& pool : pools_) program_.available.push_back(pool.count);
    OneMachine();
    SideBySide();
    TwoKinds();
    const bool price = problem_.goal == Goal::kPrice;
    program_.class_rates = {price ? problem_.required_requests_per_second : 1.0};
    if (problem_.goal == Goal::kBudget) program_.budget_usd_per_hour = problem_.budget_usd_per_hour;
    const absl::StatusOr<Rental> rental =
        price ? CheapestRental(program_) : LargestRentalByBisection(program_, options_.bisection);
    Grouping grouping;
    for (size_t c = 0; rental.ok() && c < groups_.size(); ++c)
      grouping.insert(grouping.end(), static_cast<size_t>(rental->copies[c]), groups_[c]);
    return layouts_.Finish(grouping, static_cast<int64_t>(groups_.size()));
  }

 private:
  void Offer(const std::vector<int>& counts) {
    if (layouts_.layouts() >= options_.most_layouts || problem_.watch.Stopped()) return;
    if (!tried_.insert(counts).second) return;
    DeviceGroup group;
    group.counts = counts;
    problem_.watch.Report(StrCat("configurations ", groups_.size()));
    const PlacedReplica& replica = layouts_.ReplicaOf(group);
    if (replica.rate.requests_per_second <= 0) return;
    // What the layout leaves idle is not rented.
    group.counts.assign(pools_.size(), 0);
    for (const LayoutStage& stage : replica.stages)
      group.counts[static_cast<size_t>(stage.pool)] += stage.width;
    groups_.push_back(group);
    program_.configurations.push_back(
        {group.counts, replica.usd_per_hour, {replica.rate.requests_per_second}});
  }

  void OneMachine() {
    for (size_t p = 0; p < pools_.size(); ++p) {
      for (int devices = 1; devices <= pools_[p].count; ++devices) {
        std::vector<int> counts(pools_.size(), 0);
        counts[p] = devices;
        Offer(counts);
      }
    }
  }

  // Pools of one kind in one site, from each on along the list, whole or half.
  void SideBySide() {
    for (size_t p = 0; p < pools_.size(); ++p) {
      std::vector<int> whole(pools_.size(), 0), half(pools_.size(), 0);
      int machines = 0;
      for (size_t q = p; q < pools_.size() && machines < options_.most_machines_side_by_side; ++q) {
        if (pools_[q].spec != pools_[p].spec || !SameSite(p, q)) continue;
        ++machines;
        whole[q] = pools_[q].count;
        half[q] = (pools_[q].count + 1) / 2;
        if (machines == 1) continue;
        Offer(whole);
        Offer(half);
      }
    }
  }

  void TwoKinds() {
    for (size_t p = 0; p < pools_.size(); ++p) {
      for (size_t q = p + 1; q < pools_.size(); ++q) {
        if (pools_[p].spec == pools_[q].spec) continue;
        for (const int some : {pools_[p].count, (pools_[p].count + 1) / 2}) {
          for (const int others : {pools_[q].count, (pools_[q].count + 1) / 2}) {
            std::vector<int> counts(pools_.size(), 0);
            counts[p] = some;
            counts[q] = others;
            Offer(counts);
          }
        }
      }
    }
  }

  bool SameSite(size_t p, size_t q) const {
    const std::vector<MachineNode>& machines = problem_.graph->machines();
    return machines[static_cast<size_t>(pools_[p].machine)].site ==
           machines[static_cast<size_t>(pools_[q].machine)].site;
  }

  const PlacementProblem& problem_;
  const CostSearchOptions options_;
  const std::vector<DevicePool>& pools_;
  GroupLayouts layouts_;
  std::set<std::vector<int>> tried_;
  CostProgram program_;
  std::vector<DeviceGroup> groups_;  // of the program's configurations
};

}  // namespace

absl::StatusOr<Placement> SearchByCost(const PlacementProblem& problem,
                                       const CostSearchOptions& options) {
  return CostSearch(problem, options).Run();
}

}  // namespace tessera::scheduler
