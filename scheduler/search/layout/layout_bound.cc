#include "scheduler/search/layout/layout_bound.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "scheduler/search/layout/stage_sequences.h"
#include "scheduler/search/layout/stage_shapes.h"

namespace tessera::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 + 1e-9;
constexpr double kFewestRows = 1.0 / 64;
constexpr double kNarrowest = 1 + 1e-8;  // range of rows that is not halved any more
constexpr int kFirstSteps = 10, kSteps = 4, kFineSteps = 50;  // of bisecting a period
constexpr int kMaxMoves = 20;
constexpr StagePlace kPlaces[] = {StagePlace::kInner, StagePlace::kFirst, StagePlace::kLast,
                                  StagePlace::kOnly};

struct Range {
  int stages = 0, micro_batches = 0;
  double low = 0, high = 0;  // rows
  double bound = kInfinity;
  bool in_time = false;  // with the most rows of the range there may be layouts that keep TPOT
  bool tested = false;   // the bound is that of a test
  bool operator<(const Range& other) const { return bound < other.bound; }
};

// Machines of the pools, counted from 0.
std::vector<int> MachinesOf(const std::vector<LayoutPool>& pools) {
  std::vector<int> graph_machines, machines;
  for (const LayoutPool& pool : pools) {
    const auto known = std::find(graph_machines.begin(), graph_machines.end(), pool.machine);
    machines.push_back(static_cast<int>(known - graph_machines.begin()));
    if (known == graph_machines.end()) graph_machines.push_back(pool.machine);
  }
  return machines;
}

std::vector<StageType> TypesOf(const LayoutProblem& problem, StageShapes* shapes) {
  std::vector<StageType> types;
  const std::vector<int> machines = MachinesOf(problem.pools);
  int radix = 1;
  for (size_t p = 0; p < problem.pools.size(); ++p) {
    const LayoutPool& pool = problem.pools[p];
    const LinkSpec& inside = problem.graph->machines()[static_cast<size_t>(pool.machine)].inside;
    for (int width = 1; width <= std::min(pool.count, MaxWidth(*problem.model)); ++width) {
      types.push_back({static_cast<int>(p), width, shapes->Intern(*pool.spec, inside, width),
                       machines[p], width * radix});
    }
    radix *= pool.count + 1;
  }
  return types;
}

}  // namespace

class LayoutBound::Search {
 public:
  Search(const LayoutProblem& problem, double tolerance)
      : problem_(problem),
        model_(*problem_.model),
        tolerance_(tolerance),
        shapes_(model_, problem_.lengths, problem_.options),
        prompts_only_(problem_.role == Role::kPrefill || problem_.lengths.decode_steps <= 0),
        types_(TypesOf(problem_, &shapes_)) {
    best_.rate.requests_per_second = problem_.known_rate;
    Open();
  }

  void StartFrom(const std::vector<LayoutStage>& stages, double bound) {
    known_bound_ = std::min(known_bound_, bound);
    if (!stages.empty()) Offer({stages, RateOf(stages)});
  }

  int Refine(double target, int tests) {
    const int before = tests_;
    if (known_bound_ <= Enough(target)) return 0;
    while (!ranges_.empty() && tests_ < before + tests) {
      if (ranges_.front().bound <= Enough(target)) break;
      std::pop_heap(ranges_.begin(), ranges_.end());
      const Range range = ranges_.back();
      ranges_.pop_back();
      Narrow(range, target);
    }
    return tests_ - before;
  }

  const Layout& best() const { return best_; }
  double bound() const {
    const double open = ranges_.empty() ? 0 : ranges_.front().bound;
    return std::max(std::min(known_bound_, std::max(open, closed_)),
                    best_.rate.requests_per_second);
  }

 private:
  int Machines() const {
    int machines = 0;
    for (const StageType& type : types_) machines = std::max(machines, type.machine + 1);
    return machines;
  }

  StageSequences& Sequences() {
    if (!sequences_) sequences_.emplace(types_, problem_.pools, Machines());
    return *sequences_;
  }

  double Enough(double target) const {
    return std::max(target, best_.rate.requests_per_second) * (1 + tolerance_);
  }

  void Open() {
    const double uncached = problem_.lengths.uncached_prompt_tokens;
    if (prompts_only_ && (problem_.role == Role::kDecode || uncached <= 0)) return;
    output_ =
        prompts_only_
            ? SteadyWork(problem_.role, problem_.lengths, 0, problem_.options).prefill_tokens /
                  uncached
            : 1 / problem_.lengths.decode_steps;
    int devices = 0;
    for (const LayoutPool& pool : problem_.pools) devices += pool.count;
    if (MostLayers() < model_.layers) return;
    for (int stages = 1; stages <= std::min(devices, model_.layers); ++stages) {
      Open({stages, stages});
      for (int micro = 1; micro < stages && !prompts_only_; ++micro) Open({stages, micro});
    }
  }

  double LeastKv() const {
    return LeastKvTokens(problem_.role, problem_.lengths, problem_.options);
  }

  // Layers that memory has room for, on all devices, beside the KV of the longest sequence.
  double MostLayers() const {
    const double kv = std::max(1.0, LeastKv());
    std::vector<double> of_device(problem_.pools.size(), 0);  // in the width that suits it
    for (const StageType& type : types_) {
      double& most = of_device[static_cast<size_t>(type.pool)];
      for (const StagePlace place : kPlaces) {
        const double room = shapes_[type.shape].MemoryLayers(place, kv) * kRounding;
        most = std::max(most, std::min<double>(room, model_.layers) / type.width);
      }
    }
    double layers = 0;
    for (size_t p = 0; p < of_device.size(); ++p) layers += of_device[p] * problem_.pools[p].count;
    return layers * kRounding;
  }

  double MostRows(int micro_batches) const {
    if (prompts_only_) return 1;
    return LargestRows(problem_.role, problem_.lengths, problem_.options, kInfinity, micro_batches);
  }

  void Open(Range range) {
    const int m = range.micro_batches;
    range.high = MostRows(m);
    range.low = prompts_only_ ? 1 : 0;
    // Fewer micro-batches than stages: KV holds fewer sequences than stages.
    if (m < range.stages) range.high = std::min(range.high, m == 1 ? 2.0 : 1 + 1.0 / m);
    if (m > 1 && !std::isfinite(problem_.options.max_tpot_seconds)) range.low = 1;
    if (range.high < range.low) return;
    range.bound = output_ * range.high / LeastPeriod(range) * kRounding;
    Keep(range);
  }

  // No layout of the range has a shorter one: layers on all devices at once, or those of one
  // micro-batch after the other on the fastest.
  double LeastPeriod(const Range& range) {
    const std::vector<ShapeSeconds>& seconds =
        shapes_.SecondsAt(problem_.role, prompts_only_ ? 0 : range.high);
    std::vector<double> of_device(problem_.pools.size(), 0);  // layers per second
    double fixed = kInfinity, layer = kInfinity;
    for (const StageType& type : types_) {
      const ShapeSeconds& s = seconds[static_cast<size_t>(type.shape)];
      double& most = of_device[static_cast<size_t>(type.pool)];
      most = std::max(most, 1 / (s.layer * type.width));
      fixed = std::min(fixed, s.fixed);
      layer = std::min(layer, s.layer);
    }
    double layers = 0;
    for (size_t p = 0; p < of_device.size(); ++p) layers += of_device[p] * problem_.pools[p].count;
    return std::max(fixed + model_.layers / layers,
                    (range.stages * fixed + model_.layers * layer) / range.micro_batches);
  }

  void Keep(const Range& range) {
    ranges_.push_back(range);
    std::push_heap(ranges_.begin(), ranges_.end());
  }

  double KvTokens(const Range& range) const {
    const double longest = std::max(1.0, LeastKv());
    if (prompts_only_) return longest;
    const double rows =
        range.low * range.micro_batches * std::max(1.0, problem_.lengths.mean_decode_context());
    return std::max(longest, rows / (1 - problem_.options.kv_headroom));
  }

  // What a layout of the range with this period may be.
  SequenceLimits LimitsAt(const Range& range, double period) {
    const double rows = prompts_only_ ? 0 : range.high, kv = KvTokens(range);
    const std::vector<ShapeSeconds>& seconds = shapes_.SecondsAt(problem_.role, rows);
    const StepWork work = SteadyWork(problem_.role, problem_.lengths, rows, problem_.options);
    SequenceLimits limits;
    limits.stages = range.stages;
    limits.layers = model_.layers;
    limits.sum_seconds = range.micro_batches * period * kRounding;
    for (const StageType& type : types_) {
      const ShapeSeconds& s = seconds[static_cast<size_t>(type.shape)];
      limits.fixed_seconds.push_back(s.fixed);
      limits.layer_seconds.push_back(s.layer);
      limits.head_seconds.push_back(s.head);
      for (const StagePlace place : kPlaces) {
        const bool head = place == StagePlace::kLast || place == StagePlace::kOnly;
        const double most = std::min({static_cast<double>(model_.layers),
                                      (period - s.fixed - (head ? s.head : 0)) / s.layer,
                                      shapes_[type.shape].MemoryLayers(place, kv)});
        limits.most[static_cast<int>(place)].push_back(
            most * kRounding >= 1 ? static_cast<int>(most * kRounding) : 0);
      }
    }
    SetHops(work, seconds, period * kRounding, &limits);
    return limits;
  }

  void SetHops(const StepWork& work, const std::vector<ShapeSeconds>& seconds, double most,
               SequenceLimits* limits) const {
    const int machines = Machines();
    std::vector<int> graph_machine(static_cast<size_t>(machines));
    for (const StageType& type : types_) {
      graph_machine[static_cast<size_t>(type.machine)] =
          problem_.pools[static_cast<size_t>(type.pool)].machine;
    }
    for (const int from : graph_machine) {
      for (const StageType& type : types_) {
        const LinkSpec& link =
            problem_.graph->Between(from, graph_machine[static_cast<size_t>(type.machine)]);
        const double hop = TransferSeconds(link, work.rows() * shapes_.row_bytes()) +
                           seconds[static_cast<size_t>(type.shape)].spread;
        limits->hop_seconds.push_back(hop <= most ? hop : kInfinity);
      }
      for (const int to : graph_machine) {
        const double back =
            TransferSeconds(problem_.graph->Between(from, to), kTokenIdBytes * work.sampled_rows);
        limits->back_seconds.push_back(back <= most ? back : kInfinity);
      }
    }
  }

  // May a layout of the range have this period per row?
  bool Possible(const Range& range, double per_row, std::vector<LayoutStage>* stages) {
    ++tests_;
    if (!prompts_only_ && range.low > 0) {
      const double slowest =
          problem_.options.max_tpot_seconds * kRounding / (range.low * range.micro_batches);
      per_row = std::min(per_row, slowest);
    }
    const SequenceLimits limits = LimitsAt(range, per_row * range.high);
    return Sequences().Test(limits, stages) != Verdict::kNone;
  }

  // Takes away rows with which no layout is in time; false: none is with any. Of what is left the
  // most rows decide, so that layouts at the limit of TPOT need not be distinguished by halving.
  bool CutToTime(Range* range) {
    if (prompts_only_ || range->in_time || !std::isfinite(problem_.options.max_tpot_seconds))
      return true;
    const auto in_time = [&](double rows) {
      ++tests_;
      Range at = *range;
      at.high = rows;
      const double period = problem_.options.max_tpot_seconds * kRounding / at.micro_batches;
      std::vector<LayoutStage> stages;
      return Sequences().Test(LimitsAt(at, period), &stages) != Verdict::kNone;
    };
    range->in_time = true;
    if (in_time(range->high)) return true;
    double most = range->low;
    if (!in_time(most)) return false;
    while (range->high > most * (1 + tolerance_ / 4) && range->high > kFewestRows * kFewestRows) {
      const double middle = (most + range->high) / 2;
      (in_time(middle) ? most : range->high) = middle;
    }
    return true;
  }

  bool IsNarrow(const Range& range) const {
    return prompts_only_ || range.high <= range.low * kNarrowest || range.high < kFewestRows;
  }

  // Excludes the range at the target, or brings its bound down, keeps what it found and halves it.
  void Narrow(Range range, double target) {
    std::vector<LayoutStage> stages;
    double fast = range.bound < kInfinity ? output_ / range.bound : 0;
    // Nothing known to beat: is there any layout at all?
    const bool any = Enough(target) <= 0;
    if (any && !Possible(range, kInfinity, &stages)) return;
    double slow = any ? Slowest(range) : output_ / Enough(target);
    bool possible = Possible(range, slow, &stages);
    const double most = range.high;
    if (possible && !CutToTime(&range)) return;
    if (range.high < most) {
      if (any) slow = Slowest(range);
      possible = Possible(range, slow, &stages);
    }
    if (!possible) {
      if (any) {
        closed_ = std::max(closed_, output_ / slow);
      } else {
        range.bound = Enough(target);  // not output_ / slow, which rounding may leave above it
        Keep(range);
      }
      return;
    }
    const bool narrow = IsNarrow(range);
    const int steps = narrow ? kFineSteps : range.tested ? kSteps : kFirstSteps;
    double low = fast > 0 ? fast : slow / 4096;
    std::vector<LayoutStage> tighter;
    for (int i = 0; i < steps && slow > low * (1 + tolerance_ / 4); ++i) {
      const double middle = std::sqrt(low * slow);
      if (Possible(range, middle, &tighter)) {
        slow = middle;
        stages = tighter;
      } else {
        low = fast = middle;
      }
    }
    Judge(range, stages);
    range.bound = std::min(range.bound, output_ / (fast > 0 ? fast : low) * kRounding);
    range.tested = true;
    if (narrow) {
      closed_ = std::max(closed_, range.bound);
      return;
    }
    Range lower = range, upper = range;
    const double middle = range.low > 0 ? std::sqrt(range.low * range.high) : range.high / 2;
    lower.high = upper.low = middle;
    upper.in_time = false;  // KV for more rows
    Keep(upper);
    Keep(lower);
  }

  // All layers on the slowest shape, many times over.
  double Slowest(const Range& range) {
    double slowest = 0;
    for (const ShapeSeconds& s : shapes_.SecondsAt(problem_.role, prompts_only_ ? 0 : range.high)) {
      slowest = std::max(slowest, s.fixed + s.head + s.layer * model_.layers);
    }
    return 64 * slowest / range.high;
  }

  // --- Layouts ---

  // The order that was found, with its layers and with the slowest stage as fast as it can be.
  void Judge(const Range& range, std::vector<LayoutStage> stages) {
    if (stages.empty()) return;
    Layout found = {stages, RateOf(stages)};
    for (const double kv : {KvTokens(range), LeastKv()}) {
      if (!Deal(range, kv, &stages)) continue;
      const ReplicaRate rate = RateOf(stages);
      if (rate.requests_per_second > found.rate.requests_per_second) found = {stages, rate};
    }
    Offer(std::move(found));
  }

  // What is no better than the best would seldom climb above it.
  void Offer(Layout found) {
    if (found.rate.requests_per_second <= best_.rate.requests_per_second) return;
    Climb(&found.stages, &found.rate);
    best_ = std::move(found);
  }

  StagePlace PlaceOf(int stage, int stages) const {
    if (stages == 1) return StagePlace::kOnly;
    if (stage == 0) return StagePlace::kFirst;
    return stage + 1 == stages ? StagePlace::kLast : StagePlace::kInner;
  }

  ReplicaRate RateOf(const std::vector<LayoutStage>& stages) const {
    return CapacityOf(model_, MakeReplica(problem_, stages), problem_.lengths, problem_.options);
  }

  // The slowest stage as fast as it can be.
  bool Deal(const Range& range, double kv, std::vector<LayoutStage>* stages) {
    const std::vector<ShapeSeconds>& seconds =
        shapes_.SecondsAt(problem_.role, prompts_only_ ? 0 : range.high);
    const int count = static_cast<int>(stages->size());
    std::vector<int> most;
    std::vector<double> until;
    std::vector<double> layer;
    for (int i = 0; i < count; ++i) {
      LayoutStage& stage = (*stages)[static_cast<size_t>(i)];
      const auto type = std::find_if(types_.begin(), types_.end(), [&](const StageType& t) {
        return t.pool == stage.pool && t.width == stage.width;
      });
      const ShapeSeconds& s = seconds[static_cast<size_t>(type->shape)];
      most.push_back(
          static_cast<int>(shapes_[type->shape].MemoryLayers(PlaceOf(i, count), kv) * kRounding));
      if (most.back() < 1) return false;
      stage.layers = 1;
      layer.push_back(s.layer);
      until.push_back(s.fixed + 2 * s.layer + (i + 1 == count ? s.head : 0));
    }
    for (int rest = model_.layers - count; rest > 0; --rest) {
      size_t best = most.size();
      for (size_t i = 0; i < most.size(); ++i) {
        if ((*stages)[i].layers >= most[i]) continue;
        if (best == most.size() || until[i] < until[best]) best = i;
      }
      if (best == most.size()) return false;
      ++(*stages)[best].layers;
      until[best] += layer[best];
    }
    return count <= model_.layers;
  }

  // Moves single layers, and swaps neighbours, while that helps.
  void Climb(std::vector<LayoutStage>* stages, ReplicaRate* rate) const {
    for (int move = 0; move < kMaxMoves; ++move) {
      std::vector<LayoutStage> best = *stages;
      ReplicaRate best_rate = *rate;
      const auto look = [&](const std::vector<LayoutStage>& other) {
        const ReplicaRate its = RateOf(other);
        if (its.requests_per_second <= best_rate.requests_per_second * (1 + 1e-12)) return;
        best = other;
        best_rate = its;
      };
      for (size_t from = 0; from < stages->size(); ++from) {
        for (size_t to = 0; to < stages->size(); ++to) {
          if (from == to) continue;
          std::vector<LayoutStage> moved = *stages;
          if (moved[from].layers > 1) {
            --moved[from].layers;
            ++moved[to].layers;
            look(moved);
          }
          if (to < from) continue;
          moved = *stages;
          std::swap(moved[from], moved[to]);
          look(moved);
        }
      }
      if (best_rate.requests_per_second <= rate->requests_per_second) return;
      *stages = best;
      *rate = best_rate;
    }
  }

  const LayoutProblem problem_;
  const ModelShape& model_;
  const double tolerance_;
  StageShapes shapes_;
  const bool prompts_only_;
  const std::vector<StageType> types_;
  std::optional<StageSequences> sequences_;  // from the first test on
  double output_ = 0;                        // requests per row
  Layout best_;
  double known_bound_ = kInfinity;
  double closed_ = 0;  // bound of the ranges that are not halved any more
  int tests_ = 0;
  std::vector<Range> ranges_;
};

LayoutBound::LayoutBound(const LayoutProblem& problem, double tolerance)
    : search_(std::make_unique<Search>(problem, tolerance)) {}
LayoutBound::~LayoutBound() = default;
LayoutBound::LayoutBound(LayoutBound&&) noexcept = default;

void LayoutBound::StartFrom(const std::vector<LayoutStage>& stages, double bound) {
  search_->StartFrom(stages, bound);
}
int LayoutBound::Refine(double target, int tests) { return search_->Refine(target, tests); }
const Layout& LayoutBound::best() const { return search_->best(); }
double LayoutBound::bound() const { return search_->bound(); }

BoundedLayout BoundLayout(const LayoutProblem& problem, const LayoutBoundOptions& options) {
  LayoutBound bound(problem, options.tolerance);
  bound.Refine(0, options.max_tests);
  return {bound.best(), bound.bound()};
}

}  // namespace tessera::scheduler
