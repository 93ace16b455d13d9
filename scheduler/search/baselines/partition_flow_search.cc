#include "scheduler/search/baselines/partition_flow_search.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "scheduler/search/baselines/phase_flow.h"
#include "scheduler/search/layout/rented_replicas.h"
#include "scheduler/search/math/graph_partition.h"

namespace tessera::scheduler {
namespace {

constexpr double kSaturated = 1 - 1e-6;  // of a capacity
constexpr double kGain = 1 + 1e-9;       // below that a change is rounding

class PartitionFlowSearch {
 public:
  PartitionFlowSearch(const PlacementProblem& problem, const PartitionFlowOptions& options)
      : problem_(problem),
        options_(options),
        pools_(problem.graph->pools()),
        layouts_(problem, options.layouts) {}

  absl::StatusOr<Placement> Run() {
    std::vector<Candidate> starts = Starts();
    Candidate best;
    for (Candidate& start : starts) {
      Refine(&start);
      if (best.grouping.empty() || Better(problem_, start.worth, best.worth))
        best = std::move(start);
      if (Spent()) break;
    }
    return layouts_.Finish(best.grouping, evaluations_);
  }

 private:
  struct Candidate {
    Grouping grouping;
    Worth worth;
    std::vector<double> load;  // of each group: what flows through of its rate; role both: 1
  };

  bool Spent() const {
    return evaluations_ >= options_.most_evaluations ||
           layouts_.layouts() >= options_.most_layouts || problem_.watch.Stopped();
  }

  // --- Steps 1 and 2 ---

  std::vector<Candidate> Starts() {
    std::vector<Candidate> split, whole;
    const int devices = problem_.graph->devices();
    for (int groups = 1; groups <= devices; groups += std::max(1, groups / options_.start_growth)) {
      const Grouping parts = Partition(groups);
      whole.push_back(Judged(parts));
      if (parts.size() < 2 || !layouts_.MaySplit()) continue;
      Candidate by_links = Judged(RolesByLinks(parts)),
                by_rates = Judged(layouts_.WithRoles(parts));
      Candidate& better = Better(problem_, by_rates.worth, by_links.worth) ? by_rates : by_links;
      if (better.worth.requests_per_second > 0) split.push_back(std::move(better));
    }
    splits_ = !split.empty();
    std::vector<Candidate>& starts = splits_ ? split : whole;
    std::stable_sort(starts.begin(), starts.end(), [&](const Candidate& a, const Candidate& b) {
      return Better(problem_, a.worth, b.worth);
    });
    starts.resize(std::min(starts.size(), static_cast<size_t>(options_.starts)));
    return std::move(starts);
  }

  Grouping Partition(int groups) const {
    std::vector<int> pool_of;
    for (size_t p = 0; p < pools_.size(); ++p)
      pool_of.insert(pool_of.end(), static_cast<size_t>(pools_[p].count), static_cast<int>(p));
    const size_t n = pool_of.size();
    const auto pool = [&](size_t device) -> const DevicePool& {
      return pools_[static_cast<size_t>(pool_of[device])];
    };
    GraphWeights weights(n, std::vector<double>(n, 0));
    std::vector<double> memory;
    for (size_t i = 0; i < n; ++i) {
      memory.push_back(pool(i).spec->memory_bytes);
      for (size_t j = 0; j < n; ++j) {
        if (i == j) continue;
        weights[i][j] = problem_.graph->Between(pool(i).machine, pool(j).machine).bytes_per_second;
      }
    }
    // Links may differ in the two directions.
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < i; ++j)
        weights[i][j] = weights[j][i] = (weights[i][j] + weights[j][i]) / 2;
    }
    const std::vector<int> part = PartitionGraph(weights, memory, groups, options_.size_tolerance);
    Grouping grouping(static_cast<size_t>(groups));
    for (DeviceGroup& group : grouping) group.counts.assign(pools_.size(), 0);
    for (size_t i = 0; i < n; ++i) {
      ++grouping[static_cast<size_t>(part[i])].counts[static_cast<size_t>(pool_of[i])];
    }
    Normalise(&grouping);
    return grouping;
  }

  // Two sides of the coarsened graph with much between them: signs of the Laplacian's last
  // eigenvector.
  Grouping RolesByLinks(Grouping grouping) const {
    const size_t n = grouping.size();
    GraphWeights weights(n, std::vector<double>(n, 0));
    for (size_t a = 0; a < n; ++a) {
      for (size_t b = 0; b < n; ++b) {
        if (a != b)
          weights[a][b] =
              (Between(grouping[a], grouping[b]) + Between(grouping[b], grouping[a])) / 2;
      }
    }
    const std::vector<double> last = EigenvectorsOf(LaplacianOf(weights)).vectors.back();
    const double sign = last[0] < 0 ? -1 : 1;
    for (size_t i = 0; i < n; ++i)
      grouping[i].role = last[i] * sign >= 0 ? Role::kPrefill : Role::kDecode;
    Normalise(&grouping);
    return grouping;
  }

  double Between(const DeviceGroup& a, const DeviceGroup& b) const {
    double sum = 0;
    for (size_t p = 0; p < pools_.size(); ++p) {
      for (size_t q = 0; q < pools_.size(); ++q) {
        const LinkSpec& link = problem_.graph->Between(pools_[p].machine, pools_[q].machine);
        sum += a.counts[p] * b.counts[q] * link.bytes_per_second;
      }
    }
    return sum;
  }

  // --- Step 3 ---

  Candidate Judged(Grouping grouping) {
    ++evaluations_;
    Candidate candidate;
    candidate.grouping = std::move(grouping);
    std::vector<const PlacedReplica*> replicas;
    for (const DeviceGroup& group : candidate.grouping)
      replicas.push_back(&layouts_.ReplicaOf(group));
    const std::vector<bool> chosen = RentedReplicas(problem_, replicas);
    candidate.worth.usd_per_hour = RentOf(problem_, replicas, chosen);
    std::vector<const PlacedReplica*> split;
    std::vector<size_t> index;  // of split ones in the grouping
    candidate.load.assign(replicas.size(), 0);
    for (size_t i = 0; i < replicas.size(); ++i) {
      if (!chosen[i]) continue;
      if (replicas[i]->role == Role::kBoth) {
        candidate.worth.requests_per_second += replicas[i]->rate.requests_per_second;
        candidate.load[i] = 1;
      } else {
        index.push_back(i);
        split.push_back(replicas[i]);
      }
    }
    const RateProgram transport = MakeRateProgram(problem_, layouts_.lengths(), split);
    const PhaseFlow flow = LargestPhaseFlow(transport);
    candidate.worth.requests_per_second += flow.requests_per_second;
    for (size_t i = 0; i < split.size(); ++i)
      candidate.load[index[i]] = flow.through[i] / transport.capacity[i];
    // Who hangs on a saturated link is as good as saturated itself.
    for (size_t p = 0; p < flow.pairs.size(); ++p) {
      const RateProgram::Pair& pair = transport.pairs[p];
      if (flow.pairs[p] < pair.link_rate * kSaturated) continue;
      candidate.load[index[static_cast<size_t>(pair.prefill)]] = 1;
      candidate.load[index[static_cast<size_t>(pair.decode)]] = 1;
    }
    return candidate;
  }

  // --- Step 4 ---

  void Refine(Candidate* here) {
    while (!Spent() && Improve(here)) {
    }
  }

  // The first change that gains, from the idlest group on.
  bool Improve(Candidate* here) {
    std::vector<size_t> order(here->grouping.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return here->load[a] < here->load[b]; });
    for (const size_t idle : order) {
      if (splits_ && here->load[idle] >= kSaturated) break;
      if (splits_ && TryFlip(idle, here)) return true;
      for (auto busy = order.rbegin(); busy != order.rend(); ++busy) {
        if (*busy == idle || (splits_ && here->load[*busy] < kSaturated)) continue;
        if (TryMoves(idle, *busy, here)) return true;
      }
    }
    return false;
  }

  bool Try(Grouping grouping, Candidate* here) {
    if (Spent()) return false;
    layouts_.Report("groupings", evaluations_, here->worth);
    Normalise(&grouping);
    Candidate candidate = Judged(std::move(grouping));
    Worth gained = here->worth;
    gained.requests_per_second *= kGain;
    if (!Better(problem_, candidate.worth, gained)) return false;
    *here = std::move(candidate);
    return true;
  }

  bool TryFlip(size_t idle, Candidate* here) {
    Grouping flipped = here->grouping;
    flipped[idle].role = flipped[idle].role == Role::kPrefill ? Role::kDecode : Role::kPrefill;
    return Try(std::move(flipped), here);
  }

  // Devices of the idle group go to the busy one, for nothing or for devices of another pool.
  bool TryMoves(size_t idle, size_t busy, Candidate* here) {
    const Grouping before = here->grouping;
    for (size_t p = 0; p < pools_.size(); ++p) {
      const int have = before[idle].counts[p];
      if (have == 0) continue;
      for (const int devices : {1, have}) {
        Grouping moved = before;
        moved[idle].counts[p] -= devices;
        moved[busy].counts[p] += devices;
        if (Try(moved, here)) return true;
        if (have == 1) break;
      }
      for (size_t q = 0; q < pools_.size(); ++q) {
        if (q == p || before[busy].counts[q] == 0) continue;
        Grouping swapped = before;
        --swapped[idle].counts[p];
        ++swapped[busy].counts[p];
        --swapped[busy].counts[q];
        ++swapped[idle].counts[q];
        if (Try(swapped, here)) return true;
      }
    }
    return false;
  }

  const PlacementProblem& problem_;
  const PartitionFlowOptions options_;
  const std::vector<DevicePool>& pools_;
  GroupLayouts layouts_;
  bool splits_ = false;  // groups prefill or decode; else they do both
  int64_t evaluations_ = 0;
};

}  // namespace

absl::StatusOr<Placement> SearchPartitionFlow(const PlacementProblem& problem,
                                              const PartitionFlowOptions& options) {
  return PartitionFlowSearch(problem, options).Run();
}

}  // namespace tessera::scheduler
