#include "scheduler/search/best/split_over_links.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "scheduler/search/layout/rate_program.h"
#include "scheduler/search/layout/stage_shapes.h"

namespace tessera::scheduler {
namespace {

// Most layers that a stage may have in a replica that serves more than a floor, by memory and time.
class StageRoom {
 public:
  StageRoom(const LayoutProblem& problem, double floor)
      : problem_(problem),
        floor_(floor),
        shapes_(*problem.model, problem.lengths, problem.options),
        prompts_only_(problem.role == Role::kPrefill || problem.lengths.decode_steps <= 0) {
    for (const LayoutPool& pool : problem.pools) devices_ += pool.count;
    for (const LayoutPool& pool : problem.pools) {
      const LinkSpec& inside = problem.graph->machines()[static_cast<size_t>(pool.machine)].inside;
      std::vector<int>& widths = shape_.emplace_back();
      for (int width = 1; width <= std::min(pool.count, MaxWidth(*problem.model)); ++width)
        widths.push_back(shapes_.Intern(*pool.spec, inside, width));
    }
    for (int stages = 1; stages <= devices_; ++stages) SetMost(stages);
  }

  int widths(size_t pool) const { return static_cast<int>(shape_[pool].size()); }

  // The most in a pipeline of at least so many stages.
  int Most(size_t pool, int width, StagePlace place, int stages) const {
    return most_[static_cast<size_t>(stages - 1)][pool][static_cast<size_t>(width - 1)]
                [static_cast<int>(place)];
  }

  // How many layers free devices can take, each its best share of a stage's.
  double Reach(const std::vector<int>& free, int stages) const {
    double layers = 0;
    for (size_t pool = 0; pool < free.size(); ++pool)
      layers += free[pool] * share_[static_cast<size_t>(stages - 1)][pool];
    return layers * kRounding;
  }

 private:
  using ByPlace = std::array<int, 4>;

  void SetMost(int stages) {
    auto& by_pool = most_.emplace_back();
    std::vector<double>& shares = share_.emplace_back();
    for (const std::vector<int>& widths : shape_) {
      std::vector<ByPlace>& by_width = by_pool.emplace_back();
      double share = 0;
      for (size_t w = 0; w < widths.size(); ++w) {
        ByPlace& most = by_width.emplace_back();
        for (const StagePlace place :
             {StagePlace::kInner, StagePlace::kFirst, StagePlace::kLast, StagePlace::kOnly}) {
          const int layers = MostLayers(widths[w], place, stages);
          most[static_cast<size_t>(place)] = layers;
          if (place != StagePlace::kOnly)
            share = std::max(share, layers / static_cast<double>(w + 1));
        }
      }
      shares.push_back(share);
    }
  }

  int MostLayers(int shape, StagePlace place, int stages) {
    int most = 0, too_many = problem_.model->layers + 1;
    while (too_many - most > 1) {
      const int layers = (most + too_many) / 2;
      (Holds(shape, place, stages, layers) ? most : too_many) = layers;
    }
    return most;
  }

  // Rows over seconds grow with the rows: those that the stage's own KV allows decide. Where KV
  // holds fewer sequences than stages, micro-batches are fewer and have less than two rows.
  bool Holds(int shape, StagePlace place, int stages, int layers) {
    const StageShape& of = shapes_[shape];
    const double kv =
        kRounding * (of.room(place) - layers * of.layer_bytes) / (layers * of.kv_token_bytes);
    if (kv < LeastKvTokens(problem_.role, problem_.lengths, problem_.options)) return false;
    const auto rows_of = [&](int micro_batches) {
      return LargestRows(problem_.role, problem_.lengths, problem_.options, kv, micro_batches);
    };
    double rows = 0;
    if (!prompts_only_) rows = std::max(rows_of(stages), std::min(2.0, rows_of(1)));
    const ShapeSeconds& s = shapes_.SecondsAt(problem_.role, rows)[static_cast<size_t>(shape)];
    const bool head = place == StagePlace::kLast || place == StagePlace::kOnly;
    const double seconds = s.fixed + layers * s.layer + (head ? s.head : 0);
    const double output =
        prompts_only_
            ? SteadyWork(problem_.role, problem_.lengths, 0, problem_.options).prefill_tokens /
                  problem_.lengths.uncached_prompt_tokens
            : rows / problem_.lengths.decode_steps;
    return seconds * floor_ <= output * kRounding;
  }

  static constexpr double kRounding = 1 + 1e-9;

  const LayoutProblem& problem_;
  const double floor_;
  StageShapes shapes_;
  const bool prompts_only_;
  int devices_ = 0;
  std::vector<std::vector<int>> shape_;                  // by pool and width
  std::vector<std::vector<std::vector<ByPlace>>> most_;  // by stages, pool and width
  std::vector<std::vector<double>> share_;               // by stages and pool
};

class LayoutsOfSet {
 public:
  LayoutsOfSet(const LayoutProblem& problem, int64_t most, double floor)
      : problem_(problem), floor_(floor), room_(problem, floor), left_(most) {
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
    if (rest == 0) Judge();
    if (--left_ < 0) return false;
    const int stages = static_cast<int>(stages_.size()) + 1;
    const StagePlace place = layer == 0 ? StagePlace::kFirst : StagePlace::kInner;
    const StagePlace end = layer == 0 ? StagePlace::kOnly : StagePlace::kLast;
    for (size_t pool = 0; rest > 0 && pool < free_.size(); ++pool) {
      for (int width = 1; width <= std::min(free_[pool], room_.widths(pool)); ++width) {
        free_[pool] -= width;
        bool few = true;
        // Another stage follows, or this one takes the rest.
        const bool last_device =
            std::all_of(free_.begin(), free_.end(), [](int n) { return n == 0; });
        const int most =
            last_device ? 0 : std::min(rest - 1, room_.Most(pool, width, place, stages + 1));
        const int least = last_device ? 1 : rest - static_cast<int>(room_.Reach(free_, stages + 1));
        for (int layers = std::max(1, least); few && layers <= most; ++layers)
          few = GrowBy({static_cast<int>(pool), width, layers}, layer);
        if (few && rest <= room_.Most(pool, width, end, stages))
          few = GrowBy({static_cast<int>(pool), width, rest}, layer);
        free_[pool] += width;
        if (!few) return false;
      }
    }
    return true;
  }

  bool GrowBy(const LayoutStage& stage, int layer) {
    stages_.push_back(stage);
    const bool few = Grow(layer + stage.layers);
    stages_.pop_back();
    return few;
  }

  void Judge() {
    const ReplicaRate rate = CapacityOf(*problem_.model, MakeReplica(problem_, stages_),
                                        problem_.lengths, problem_.options);
    if (rate.requests_per_second <= floor_) return;
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
  const double floor_;
  const StageRoom room_;
  int64_t left_;  // layouts and parts of them
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
    const RateProgram transport = MakeRateProgram(problem_, lengths_, replicas);
    if (transport.pairs.size() == 1) {
      const RateProgram::Pair& pair = transport.pairs[0];
      double most =
          std::min({transport.capacity[static_cast<size_t>(pair.prefill)],
                    transport.capacity[static_cast<size_t>(pair.decode)], pair.link_rate});
      for (const RateProgram::SharedLink& link : transport.shared) {
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

std::optional<std::vector<Layout>> LayoutsByMachines(const LayoutProblem& problem, int64_t most,
                                                     double floor) {
  return LayoutsOfSet(problem, most, floor).Run();
}

std::optional<SplitOverLinks> BestSplitOverLinks(const PlacementProblem& problem,
                                                 const std::vector<SplitSet>& sets, double floor,
                                                 int64_t most) {
  return Combinations(problem, sets, floor, most).Run();
}

}  // namespace tessera::scheduler
