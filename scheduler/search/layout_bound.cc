#include "scheduler/search/layout_bound.h"

#include <algorithm>
#include <cmath>

#include "scheduler/search/stage_shapes.h"

namespace tessera::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 + 1e-9;
constexpr double kFewestRows = 1.0 / 64;
constexpr double kNarrowest = 1 + 1e-8;            // range of rows that is not halved any more
constexpr int kCoarseSteps = 10, kFineSteps = 50;  // of bisecting a period
constexpr int kMostMoves = 20;

class LayoutBound {
 public:
  LayoutBound(const LayoutProblem& problem, const LayoutBoundOptions& options)
      : problem_(problem),
        model_(*problem.model),
        options_(options),
        shapes_(model_, problem.lengths, problem.options),
        prompts_only_(problem.role == Role::kPrefill || problem.lengths.decode_steps <= 0) {
    best_.rate.requests_per_second = problem.known_rate;
    for (size_t p = 0; p < problem.pools.size(); ++p) {
      radix_.push_back(states_);
      states_ *= problem.pools[p].count + 1;
      devices_ += problem.pools[p].count;
      const int most = std::min(problem.pools[p].count, MaxWidth(model_));
      for (int width = 1; width <= most; ++width) AddType(static_cast<int>(p), width);
    }
  }

  BoundedLayout Run() {
    const double uncached = problem_.lengths.uncached_prompt_tokens;
    if (prompts_only_ && (problem_.role == Role::kDecode || uncached <= 0)) return {};
    output_ =
        prompts_only_
            ? SteadyWork(problem_.role, problem_.lengths, 0, problem_.options).prefill_tokens /
                  uncached
            : 1 / problem_.lengths.decode_steps;
    const int most = std::min(devices_, model_.layers);
    for (int stages = 1; stages <= most; ++stages) {
      Open({stages, stages});
      for (int micro = 1; micro < stages && !prompts_only_; ++micro) Open({stages, micro});
    }
    // Best first: what it leaves open is what is closest to being better.
    while (!ranges_.empty() && tests_ < options_.max_tests) {
      std::pop_heap(ranges_.begin(), ranges_.end());
      const Range range = ranges_.back();
      ranges_.pop_back();
      if (range.bound <= Enough()) break;
      Halve(range);
    }
    BoundedLayout found;
    found.layout = best_;
    found.bound = std::max(closed_, best_.rate.requests_per_second);
    for (const Range& range : ranges_) found.bound = std::max(found.bound, range.bound);
    return found;
  }

 private:
  struct Type {
    int pool = 0;
    int width = 0;
    int shape = 0;
    int used = 0;  // devices, as a number with the pools' digits
    LinkSpec in;   // best way in
  };
  struct Range {
    int stages = 0, micro_batches = 0;
    double low = 0, high = 0;  // rows
    double bound = 0;
    bool operator<(const Range& other) const { return bound < other.bound; }
  };
  struct Caps {
    std::vector<int> layers[4];    // by StagePlace, by type
    std::vector<double> hop;       // into it, by type
    std::vector<double> detour;    // by used devices: what ways between their machines add to hops
    std::vector<double> crossing;  // by used devices: a way between machines that they need
  };

  void AddType(int pool, int width) {
    const LayoutPool& of = problem_.pools[static_cast<size_t>(pool)];
    Type type;
    type.pool = pool;
    type.width = width;
    type.used = width * radix_[static_cast<size_t>(pool)];
    type.shape = shapes_.Intern(
        *of.spec, problem_.graph->machines()[static_cast<size_t>(of.machine)].inside, width);
    type.in.latency_seconds = kInfinity;
    for (size_t from = 0; from < problem_.pools.size(); ++from) {
      if (static_cast<int>(from) == pool && of.count == width) continue;
      const LinkSpec& link = problem_.graph->Between(problem_.pools[from].machine, of.machine);
      type.in.latency_seconds = std::min(type.in.latency_seconds, link.latency_seconds);
      type.in.bytes_per_second = std::max(type.in.bytes_per_second, link.bytes_per_second);
    }
    types_.push_back(type);
  }

  double Enough() const { return best_.rate.requests_per_second * (1 + options_.tolerance); }

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
    if (range.high >= range.low) Add(range);
  }

  double KvTokens(const Range& range) const {
    const double longest = std::max(1.0, problem_.lengths.max_sequence_tokens);
    if (prompts_only_) return longest;
    const double rows =
        range.low * range.micro_batches * std::max(1.0, problem_.lengths.mean_decode_context());
    return std::max(longest, rows / (1 - problem_.options.kv_headroom));
  }

  Caps CapsAt(const Range& range, double period) {
    const double rows = prompts_only_ ? 0 : range.high, kv = KvTokens(range);
    const std::vector<ShapeSeconds>& seconds = shapes_.SecondsAt(problem_.role, rows);
    const double bytes = shapes_.RowsAt(problem_.role, rows) * shapes_.row_bytes();
    Caps caps;
    for (const Type& type : types_) {
      const ShapeSeconds& s = seconds[static_cast<size_t>(type.shape)];
      const double hop = type.in.bytes_per_second > 0
                             ? type.in.latency_seconds + bytes / type.in.bytes_per_second + s.spread
                             : kInfinity;
      caps.hop.push_back(hop);
      for (const StagePlace place :
           {StagePlace::kInner, StagePlace::kFirst, StagePlace::kLast, StagePlace::kOnly}) {
        const bool head = place == StagePlace::kLast || place == StagePlace::kOnly;
        const bool enters = place == StagePlace::kInner || place == StagePlace::kLast;
        const double most = std::min({static_cast<double>(model_.layers),
                                      (period - s.fixed - (head ? s.head : 0)) / s.layer,
                                      shapes_[type.shape].MemoryLayers(place, kv)});
        const bool fits = most * kRounding >= 1 && !(enters && hop > period * kRounding);
        caps.layers[static_cast<int>(place)].push_back(fits ? static_cast<int>(most * kRounding)
                                                            : 0);
      }
    }
    AddCrossings(bytes, &caps);
    return caps;
  }

  // A pipeline over several machines enters all but its first from outside at least once.
  void AddCrossings(double bytes, Caps* caps) const {
    const size_t pools = problem_.pools.size();
    std::vector<double> enter(pools, kInfinity), more(pools, 0);  // by machine, at its first pool
    std::vector<size_t> home(pools);
    for (size_t p = 0; p < pools; ++p) {
      home[p] = p;
      for (size_t q = 0; q < pools; ++q) {
        if (problem_.pools[q].machine == problem_.pools[p].machine) {
          home[p] = std::min(home[p], q);
          continue;
        }
        const LinkSpec& link =
            problem_.graph->Between(problem_.pools[q].machine, problem_.pools[p].machine);
        enter[p] = std::min(enter[p], TransferSeconds(link, bytes));
      }
    }
    for (size_t p = 0; p < pools; ++p) {
      double known = 0;  // counted already, of a stage in this machine
      for (const Type& type : types_) {
        if (home[static_cast<size_t>(type.pool)] != p || type.in.bytes_per_second <= 0) continue;
        known = std::max(known, TransferSeconds(type.in, bytes));
      }
      if (std::isfinite(enter[p])) more[p] = std::max(0.0, enter[p] - known);
    }
    caps->detour.assign(static_cast<size_t>(states_), 0);
    caps->crossing.assign(static_cast<size_t>(states_), 0);
    for (int used = 0; used < states_; ++used) {
      std::vector<bool> in(pools, false);
      for (size_t p = 0; p < pools; ++p) {
        if (used / radix_[p] % (problem_.pools[p].count + 1) > 0) in[home[p]] = true;
      }
      double sum = 0, largest = 0, crossing = kInfinity;
      int machines = 0;
      for (size_t p = 0; p < pools; ++p) {
        if (!in[p]) continue;
        ++machines;
        sum += more[p];
        largest = std::max(largest, more[p]);
        crossing = std::min(crossing, enter[p]);
      }
      caps->detour[static_cast<size_t>(used)] = sum - largest;
      if (machines > 1) caps->crossing[static_cast<size_t>(used)] = crossing;
    }
  }

  StagePlace PlaceOf(int stage, int stages) const {
    if (stages == 1) return StagePlace::kOnly;
    if (stage == 0) return StagePlace::kFirst;
    return stage + 1 == stages ? StagePlace::kLast : StagePlace::kInner;
  }

  bool Has(int used, const Type& type) const {
    return used / radix_[static_cast<size_t>(type.pool)] %
               (problem_.pools[static_cast<size_t>(type.pool)].count + 1) >=
           type.width;
  }

  // Can `stages` stages hold all layers? Their types go to *chosen.
  bool Holds(int stages, double period, const Caps& caps, std::vector<int>* chosen) {
    most_.assign(static_cast<size_t>(stages + 1) * static_cast<size_t>(states_), -1);
    const auto most = [&](int s, int used) -> int& {
      return most_[static_cast<size_t>(s * states_ + used)];
    };
    most(0, 0) = 0;
    int end = -1;
    for (int s = 1; s <= stages; ++s) {
      const std::vector<int>& layers = caps.layers[static_cast<int>(PlaceOf(s - 1, stages))];
      for (int used = 0; used < states_; ++used) {
        for (size_t t = 0; t < types_.size(); ++t) {
          if (layers[t] == 0 || !Has(used, types_[t])) continue;
          const int before = most(s - 1, used - types_[t].used);
          if (before >= 0) most(s, used) = std::max(most(s, used), before + layers[t]);
        }
        if (s < stages || caps.crossing[static_cast<size_t>(used)] > period * kRounding) continue;
        if (end < 0 || most(s, used) > most(s, end)) end = used;
      }
    }
    if (end < 0 || most(stages, end) < model_.layers) return false;
    chosen->assign(static_cast<size_t>(stages), 0);
    for (int s = stages; s >= 1; --s) {
      const std::vector<int>& layers = caps.layers[static_cast<int>(PlaceOf(s - 1, stages))];
      for (size_t t = 0; t < types_.size(); ++t) {
        if (layers[t] == 0 || !Has(end, types_[t])) continue;
        const int before = most(s - 1, end - types_[t].used);
        if (before < 0 || before + layers[t] != most(s, end)) continue;
        (*chosen)[static_cast<size_t>(s - 1)] = static_cast<int>(t);
        end -= types_[t].used;
        break;
      }
    }
    return true;
  }

  // Least seconds in which stages of these devices run all layers, hops at their best.
  double LeastSeconds(const Range& range, const Caps& caps) {
    const std::vector<ShapeSeconds>& seconds =
        shapes_.SecondsAt(problem_.role, prompts_only_ ? 0 : range.high);
    const int layers = model_.layers;
    const int size = layers + 1;
    least_.assign(static_cast<size_t>(states_ * size), kInfinity);
    double end = kInfinity, head = kInfinity;
    for (const Type& type : types_)
      head = std::min(head, seconds[static_cast<size_t>(type.shape)].head);
    for (int used = 1; used < states_; ++used) {
      double* out = &least_[static_cast<size_t>(used * size)];
      for (size_t t = 0; t < types_.size(); ++t) {
        if (!Has(used, types_[t])) continue;
        const ShapeSeconds& s = seconds[static_cast<size_t>(types_[t].shape)];
        const int before = used - types_[t].used;
        // No stage has more room than an inner one, or than the only one.
        const int most = std::max(caps.layers[static_cast<int>(StagePlace::kInner)][t],
                                  std::max(caps.layers[static_cast<int>(StagePlace::kOnly)][t],
                                           caps.layers[static_cast<int>(StagePlace::kFirst)][t]));
        const double* in = &least_[static_cast<size_t>(before * size)];
        for (int l = 1; l <= most; ++l) {
          const double alone = s.fixed + l * s.layer;
          if (before == 0) {
            out[l] = std::min(out[l], alone);
            continue;
          }
          const double behind = alone + caps.hop[t];
          for (int x = 1; x + l <= layers; ++x) out[x + l] = std::min(out[x + l], in[x] + behind);
        }
      }
      end = std::min(end, out[layers] + caps.detour[static_cast<size_t>(used)]);
    }
    return end + head;
  }

  // May a layout of the range have this period per row?
  bool Possible(const Range& range, double per_row, std::vector<int>* chosen) {
    ++tests_;
    const double period = per_row * range.high;
    if (!prompts_only_ && range.low > 0 &&
        per_row * range.low * range.micro_batches > problem_.options.max_tpot_seconds * kRounding) {
      per_row = problem_.options.max_tpot_seconds / (range.low * range.micro_batches);
      return Possible(range, per_row / kRounding, chosen);
    }
    const Caps caps = CapsAt(range, period);
    return Holds(range.stages, period, caps, chosen) &&
           LeastSeconds(range, caps) <= range.micro_batches * period * kRounding;
  }

  bool Narrow(const Range& range) const {
    return prompts_only_ || range.high <= range.low * kNarrowest || range.high < kFewestRows;
  }

  // Bounds the range and keeps it if it may hold something better.
  void Add(Range range) {
    std::vector<int> chosen;
    double slow = best_.rate.requests_per_second > 0 ? output_ / Enough() : Slowest(range);
    if (!Possible(range, slow, &chosen)) {
      closed_ = std::max(closed_, output_ / slow);
      return;
    }
    double fast = 0;
    const int steps = Narrow(range) ? kFineSteps : kCoarseSteps;
    double low = slow / 4096;
    for (int i = 0; i < steps && slow > low * (1 + options_.tolerance / 4); ++i) {
      const double middle = std::sqrt(low * slow);
      if (Possible(range, middle, &chosen)) {
        slow = middle;
      } else {
        low = fast = middle;
      }
    }
    if (fast <= 0) fast = low;
    Possible(range, slow, &chosen);
    Judge(range, chosen);
    range.bound = output_ / fast * kRounding;
    if (range.bound <= Enough() || Narrow(range)) {
      closed_ = std::max(closed_, range.bound);
      return;
    }
    ranges_.push_back(range);
    std::push_heap(ranges_.begin(), ranges_.end());
  }

  // All layers on the slowest shape, many times over.
  double Slowest(const Range& range) {
    double slowest = 0;
    for (const ShapeSeconds& s : shapes_.SecondsAt(problem_.role, prompts_only_ ? 0 : range.high)) {
      slowest = std::max(slowest, s.fixed + s.head + s.layer * model_.layers);
    }
    return 64 * slowest / range.high;
  }

  void Halve(const Range& range) {
    Range lower = range, upper = range;
    const double middle = range.low > 0 ? std::sqrt(range.low * range.high) : range.high / 2;
    lower.high = upper.low = middle;
    Add(upper);
    Add(lower);
  }

  // --- Layouts ---

  void Judge(const Range& range, const std::vector<int>& chosen) {
    std::vector<LayoutStage> stages;
    for (const int t : chosen)
      stages.push_back(
          {types_[static_cast<size_t>(t)].pool, types_[static_cast<size_t>(t)].width, 0});
    if (stages.size() > 3) {
      std::stable_sort(
          stages.begin() + 1, stages.end() - 1, [&](const LayoutStage& a, const LayoutStage& b) {
            const auto rank = [&](int pool) {
              return pool == stages.front().pool ? -1 : pool == stages.back().pool ? 1000 : pool;
            };
            return rank(a.pool) < rank(b.pool);
          });
    }
    for (const double kv : {KvTokens(range), problem_.lengths.max_sequence_tokens}) {
      if (!Deal(range, kv, &stages)) continue;
      ReplicaRate rate = RateOf(stages);
      Climb(&stages, &rate);
      if (rate.requests_per_second <= best_.rate.requests_per_second) continue;
      best_.stages = stages;
      best_.rate = rate;
    }
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
      const auto type = std::find_if(types_.begin(), types_.end(), [&](const Type& t) {
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
    for (int move = 0; move < kMostMoves; ++move) {
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

  const LayoutProblem& problem_;
  const ModelShape& model_;
  const LayoutBoundOptions options_;
  StageShapes shapes_;
  const bool prompts_only_;
  std::vector<Type> types_;
  std::vector<int> radix_;
  int states_ = 1;
  int devices_ = 0;
  double output_ = 0;  // requests per row
  Layout best_;
  double closed_ = 0;
  int tests_ = 0;
  std::vector<Range> ranges_;
  std::vector<int> most_;
  std::vector<double> least_;
};

}  // namespace

BoundedLayout BoundLayout(const LayoutProblem& problem, const LayoutBoundOptions& options) {
  return LayoutBound(problem, options).Run();
}

}  // namespace tessera::scheduler
