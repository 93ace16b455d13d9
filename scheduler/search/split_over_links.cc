#include "scheduler/search/split_over_links.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "scheduler/search/transport.h"

namespace tessera::scheduler {
namespace {

class LayoutsOfSet {
 public:
  LayoutsOfSet(const LayoutProblem& problem, int64_t most) : problem_(problem), left_(most) {
    for (const LayoutPool& pool : problem.pools) free_.push_back(pool.count);
  }

  std::optional<std::vector<Layout>> Run() {
    if (!Grow(0)) return std::nullopt;
    std::vector<Layout> layouts;
    for (auto& [machines, layout] : by_machines_) layouts.push_back(std::move(layout));
    std::stable_sort(layouts.begin(), layouts.end(), [](const Layout& a, const Layout& b) {
      return a.rate.requests_per_second > b.rate.requests_per_second;
    });
    return layouts;
  }

 private:
  // False: too many.
  bool Grow(int layer) {
    const int rest = problem_.model->layers - layer;
    if (rest == 0) {
      Judge();
      return --left_ >= 0;
    }
    for (size_t pool = 0; pool < free_.size(); ++pool) {
      const int most = std::min(free_[pool], MaxWidth(*problem_.model));
      for (int width = 1; width <= most; ++width) {
        free_[pool] -= width;
        for (int layers = 1; layers <= rest; ++layers) {
          // Whoever takes the last device takes the rest.
          if (layers < rest &&
              std::all_of(free_.begin(), free_.end(), [](int n) { return n == 0; }))
            continue;
          stages_.push_back({static_cast<int>(pool), width, layers});
          const bool few = Grow(layer + layers);
          stages_.pop_back();
          if (!few) return false;
        }
        free_[pool] += width;
      }
    }
    return true;
  }

  void Judge() {
    const ReplicaRate rate = CapacityOf(*problem_.model, MakeReplica(problem_, stages_),
                                        problem_.lengths, problem_.options);
    if (rate.requests_per_second <= 0) return;
    std::string machines;
    for (const LayoutStage& stage : stages_) {
      const int machine = problem_.pools[static_cast<size_t>(stage.pool)].machine;
      machines.append(static_cast<size_t>(stage.layers), static_cast<char>(machine));
    }
    Layout& best = by_machines_[machines];
    if (rate.requests_per_second <= best.rate.requests_per_second) return;
    best.stages = stages_;
    best.rate = rate;
  }

  const LayoutProblem& problem_;
  int64_t left_;
  std::vector<int> free_;
  std::vector<LayoutStage> stages_;
  std::map<std::string, Layout> by_machines_;  // a character per layer
};

class Combinations {
 public:
  Combinations(const PlacementProblem& problem, const std::vector<SplitSet>& sets, double floor,
               int64_t most)
      : problem_(problem), sets_(sets), lengths_(MomentsOf(problem.samples)), left_(most) {
    best_.requests_per_second = floor;
    replicas_.resize(sets.size());
  }

  std::optional<SplitOverLinks> Run() {
    double prefill = 0, decode = 0;
    for (const SplitSet& set : sets_) {
      if (set.layouts->empty()) return best_;
      const double rate = set.layouts->front().rate.requests_per_second;
      (set.role == Role::kPrefill ? prefill : decode) += rate;
    }
    if (!Choose(0, prefill, decode)) return std::nullopt;
    return std::move(best_);
  }

 private:
  // Layouts of the sets from `at` on; prefill and decode: what all serve at most. False: too many.
  bool Choose(size_t at, double prefill, double decode) {
    if (at == sets_.size()) {
      if (--left_ < 0) return false;
      const double carried = Carried();
      if (carried <= best_.requests_per_second) return true;
      best_.requests_per_second = carried;
      best_.replicas = replicas_;
      return true;
    }
    const SplitSet& set = sets_[at];
    for (const Layout& layout : *set.layouts) {
      const double less =
          set.layouts->front().rate.requests_per_second - layout.rate.requests_per_second;
      const bool prefills = set.role == Role::kPrefill;
      const double p = prefill - (prefills ? less : 0), d = decode - (prefills ? 0 : less);
      if (std::min(p, d) <= best_.requests_per_second) break;
      PlacedReplica& replica = replicas_[at];
      replica.role = set.role;
      replica.rate = layout.rate;
      replica.stages = layout.stages;
      for (LayoutStage& stage : replica.stages)
        stage.pool = set.pools[static_cast<size_t>(stage.pool)];
      if (!Choose(at + 1, p, d)) return false;
    }
    return true;
  }

  double Carried() const {
    std::vector<const PlacedReplica*> replicas;
    for (const PlacedReplica& replica : replicas_) replicas.push_back(&replica);
    const Transport transport = MakeTransport(problem_, lengths_, replicas);
    if (transport.pairs.size() == 1) {
      const Transport::Pair& pair = transport.pairs[0];
      double most =
          std::min({transport.capacity[static_cast<size_t>(pair.prefill)],
                    transport.capacity[static_cast<size_t>(pair.decode)], pair.link_rate});
      for (const Transport::SharedLink& link : transport.shared) {
        double bytes = 0;
        for (const auto& [index, factor] : link.uses) bytes += factor;
        if (bytes > 0) most = std::min(most, link.rate / bytes);
      }
      return most;
    }
    const absl::StatusOr<std::vector<double>> rates = SolveTransport(transport);
    double carried = 0;
    if (rates.ok()) {
      for (const double rate : *rates) carried += rate;
    }
    return carried;
  }

  const PlacementProblem& problem_;
  const std::vector<SplitSet>& sets_;
  const LengthMoments lengths_;
  int64_t left_;
  std::vector<PlacedReplica> replicas_;
  SplitOverLinks best_;
};

}  // namespace

std::optional<std::vector<Layout>> LayoutsByMachines(const LayoutProblem& problem, int64_t most) {
  return LayoutsOfSet(problem, most).Run();
}

std::optional<SplitOverLinks> BestSplitOverLinks(const PlacementProblem& problem,
                                                 const std::vector<SplitSet>& sets, double floor,
                                                 int64_t most) {
  return Combinations(problem, sets, floor, most).Run();
}

}  // namespace tessera::scheduler
