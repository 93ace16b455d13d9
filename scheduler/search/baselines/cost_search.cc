#include "scheduler/search/baselines/cost_search.h"

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
    RentMachines();
    MakeBuckets();
    OneMachine();
    SideBySide();
    TwoKinds();
    const bool price = problem_.goal == Goal::kPrice;
    for (const Bucket& bucket : buckets_) {
      program_.class_rates.push_back(bucket.share *
                                     (price ? problem_.required_requests_per_second : 1.0));
    }
    program_.stop = problem_.watch.stop;
    if (problem_.goal == Goal::kBudget) program_.budget_usd_per_hour = problem_.budget_usd_per_hour;
    const absl::StatusOr<Rental> rental =
        price ? CheapestRental(program_) : LargestRentalByBisection(program_, options_.bisection);
    Grouping grouping;
    for (size_t c = 0; rental.ok() && c < groups_.size(); ++c)
      grouping.insert(grouping.end(), static_cast<size_t>(rental->copies[c]), groups_[c]);
    absl::StatusOr<Placement> placement =
        layouts_.Finish(grouping, static_cast<int64_t>(groups_.size()));
    if (placement.ok() && rental.ok() && buckets_.size() > 1) {
      v1::ClassChoice& choice = *placement->notes.emplace_back().mutable_class_choice();
      choice.set_classes(static_cast<int>(buckets_.size()));
      choice.set_requests_per_second(rental->served *
                                     (price ? problem_.required_requests_per_second : 1));
    }
    return placement;
  }

 private:
  // Requests that the program may send to configurations of their own.
  struct Bucket {
    double share = 0;
    std::vector<RequestLengths> samples;
    LengthMoments lengths;
  };

  void RentMachines() {
    const std::vector<MachineNode>& machines = problem_.graph->machines();
    for (size_t m = 0; m < machines.size(); ++m) {
      CostProgram::Machine machine;
      machine.usd_per_hour = machines[m].price_usd_per_hour;
      int devices = 0;
      for (size_t p = 0; p < pools_.size(); ++p) {
        if (pools_[p].machine != static_cast<int>(m)) continue;
        machine.types.push_back(static_cast<int>(p));
        devices += pools_[p].count;
      }
      if (machine.usd_per_hour > 0 && devices > 1) program_.machines.push_back(std::move(machine));
    }
  }

  // Beside machines that are rented whole.
  double PriceOf(const std::vector<int>& counts) const {
    double usd = 0;
    for (size_t p = 0; p < counts.size(); ++p) usd += counts[p] * pools_[p].price_usd_per_hour;
    for (const CostProgram::Machine& machine : program_.machines) {
      for (const int n : machine.types) {
        const auto p = static_cast<size_t>(n);
        usd -= counts[p] * pools_[p].price_usd_per_hour;
      }
    }
    return std::max(0.0, usd);
  }

  // Goodput judges all classes of a replica together, so that they are one.
  void MakeBuckets() {
    const bool one = problem_.goal == Goal::kGoodput;
    if (!one && problem_.classes.size() > 1) {
      for (const RequestClass& given : problem_.classes)
        buckets_.push_back({given.share, given.samples, {}});
    } else {
      buckets_.resize(4);
      double weight = 0;
      for (const RequestLengths& sample : problem_.samples) {
        const bool cut = options_.length_buckets && !one;
        const size_t bucket =
            (cut && sample.prompt_tokens >= options_.bucket_prompt_tokens ? 2 : 0) +
            (cut && sample.output_tokens >= options_.bucket_output_tokens ? 1 : 0);
        buckets_[bucket].samples.push_back(sample);
        buckets_[bucket].share += sample.weight;
        weight += sample.weight;
      }
      for (Bucket& bucket : buckets_) bucket.share /= weight;
    }
    std::erase_if(buckets_, [](const Bucket& bucket) { return bucket.share <= 0; });
    for (Bucket& bucket : buckets_) bucket.lengths = MomentsOf(bucket.samples);
  }

  // Requests per second of each bucket if it served nothing else.
  std::vector<double> RatesOf(const PlacedReplica& replica) const {
    if (buckets_.size() == 1) return {replica.rate.requests_per_second};
    std::vector<double> rates;
    const ReplicaSpec spec = SpecOf(problem_, replica);
    for (const Bucket& bucket : buckets_) {
      rates.push_back(
          CapacityOf(*problem_.model, spec, bucket.lengths, problem_.options).requests_per_second);
    }
    return rates;
  }

  void Offer(const std::vector<int>& counts) {
    if (layouts_.layouts() >= options_.most_layouts || problem_.watch.Stopped()) return;
    if (!tried_.insert(counts).second) return;
    DeviceGroup group;
    group.counts = counts;
    problem_.watch.Report(StrCat("configurations laid out: ", groups_.size()));
    const PlacedReplica& replica = layouts_.ReplicaOf(group);
    if (replica.rate.requests_per_second <= 0) return;
    // What the layout leaves idle is not rented.
    group.counts = DevicesByPool(replica.stages, pools_.size());
    groups_.push_back(group);
    program_.configurations.push_back({group.counts, PriceOf(group.counts), RatesOf(replica)});
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

  // Pools of one kind in one group, from each on along the list, whole or half.
  void SideBySide() {
    for (size_t p = 0; p < pools_.size(); ++p) {
      std::vector<int> whole(pools_.size(), 0), half(pools_.size(), 0);
      int machines = 0;
      for (size_t q = p; q < pools_.size() && machines < options_.most_machines_side_by_side; ++q) {
        if (pools_[q].spec != pools_[p].spec || !SameGroup(p, q)) continue;
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

  bool SameGroup(size_t p, size_t q) const {
    const std::vector<MachineNode>& machines = problem_.graph->machines();
    return machines[static_cast<size_t>(pools_[p].machine)].group ==
           machines[static_cast<size_t>(pools_[q].machine)].group;
  }

  const PlacementProblem& problem_;
  const CostSearchOptions options_;
  const std::vector<DevicePool>& pools_;
  GroupLayouts layouts_;
  std::set<std::vector<int>> tried_;
  CostProgram program_;
  std::vector<Bucket> buckets_;
  std::vector<DeviceGroup> groups_;  // of the program's configurations
};

}  // namespace

absl::StatusOr<Placement> SearchByCost(const PlacementProblem& problem,
                                       const CostSearchOptions& options) {
  return CostSearch(problem, options).Run();
}

}  // namespace tessera::scheduler
