#include "scheduler/search/layout/replica_shaping.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

namespace tessera::scheduler {
namespace {

constexpr double kFewerSequences = 0.8408964152537145;  // 2^(-1/4): steps of what is tried
constexpr int kMaxSteps = 32;
constexpr int kStepsBelowBest = 4;  // that may be worse before the search for fewer ends
constexpr int kMaxDescents = 3;     // over all pools
constexpr int kRefinements = 2;     // of the best number of sequences
constexpr int kLeanSteps = 4;
constexpr double kWorthJudging = 0.95;  // of the best deal
constexpr size_t kDealsJudged = 4;      // by the cost model, where an order is looked for
constexpr int kMaxRefinings = 3;
constexpr size_t kFirstSteps = 6;  // of two: the best
constexpr int kMoreLayers = 3;     // than a stage has
constexpr double kBetter = 1 + 1e-9;
constexpr double kRoundsDown = 1 + 1e-12;  // so that room for a layer is not lost
constexpr double kRounding = 1 + 1e-9;

double SecondsOver(const LinkSpec& link, double bytes) {
  return link.latency_seconds + bytes / link.bytes_per_second;
}

bool SameDevices(const LayoutStage& a, const LayoutStage& b) {
  return a.pool == b.pool && a.width == b.width;
}

// Where stages of the same devices and width stand beside each other: [begin, end).
std::vector<std::pair<size_t, size_t>> BlocksOf(const std::vector<LayoutStage>& stages) {
  std::vector<std::pair<size_t, size_t>> blocks;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (i == 0 || !SameDevices(stages[i], stages[i - 1])) blocks.emplace_back(i, i);
    blocks.back().second = i + 1;
  }
  return blocks;
}

}  // namespace

std::vector<int> PoolsByPlace(const ClusterGraph& graph) {
  std::vector<int> order(graph.pools().size());
  std::iota(order.begin(), order.end(), 0);
  const auto place = [&](int p) {
    const int machine = graph.pools()[static_cast<size_t>(p)].machine;
    const MachineNode& node = graph.machines()[static_cast<size_t>(machine)];
    return std::tuple(node.group, node.place, machine, p);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return place(a) < place(b); });
  return order;
}

bool ReplicaShaping::ByDevices::operator()(const std::vector<LayoutStage>& a,
                                           const std::vector<LayoutStage>& b) const {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), SameDevices);
}

size_t ReplicaShaping::ByDevices::operator()(const std::vector<LayoutStage>& stages) const {
  uint64_t hash = stages.size();
  for (const LayoutStage& stage : stages) {
    const uint64_t next =
        static_cast<uint64_t>(stage.pool) << 16 ^ static_cast<uint64_t>(stage.width);
    hash = (hash ^ next) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

ReplicaShaping::ReplicaShaping(const PlacementProblem& problem, StageShapes* shapes, Role role)
    : problem_(problem),
      means_(problem.model->uniform()
                 ? nullptr
                 : std::make_unique<StageShapes>(*problem.model, shapes->lengths(), problem.options,
                                                 OneLayer::kMean)),
      shapes_(means_ ? *means_ : *shapes),
      role_(role) {
  layout_.model = problem.model;
  layout_.graph = problem.graph;
  for (const DevicePool& pool : problem.graph->pools()) {
    layout_.pools.push_back({pool.spec, pool.machine, pool.count});
    const LinkSpec& inside = problem.graph->machines()[static_cast<size_t>(pool.machine)].inside;
    std::vector<int>& by_width = shape_of_.emplace_back();
    const int most = std::min(pool.count, MaxWidth(*problem.model));
    for (int width = 1; width <= most; ++width)
      by_width.push_back(shapes_.Intern(*pool.spec, inside, width));
  }
}

ReplicaShaping::Widths ReplicaShaping::WidthsOf(const PlacedReplica& replica) {
  Widths widths;
  for (const LayoutStage& stage : replica.stages)
    widths[stage.pool] = std::max(widths[stage.pool], stage.width);
  return widths;
}

std::vector<int> ReplicaShaping::WidthsToTry(int devices) const {
  const int most = std::min(devices, MaxWidth(*problem_.model));
  std::vector<int> widths;
  for (int width = 1; width <= most; width *= 2) widths.push_back(width);
  if (widths.back() != most) widths.push_back(most);
  return widths;
}

// In the order of the devices, which is that of machines near each other.
std::vector<LayoutStage> ReplicaShaping::StagesOf(const Devices& devices,
                                                  const Widths& widths) const {
  std::vector<LayoutStage> stages;
  for (const auto& [pool, count] : devices) {
    const auto known = widths.find(pool);
    const int width = std::min(count, known == widths.end() ? 1 : known->second);
    for (int left = width > 0 ? count : 0; left > 0;) {
      const int here = std::min(left, width);
      stages.push_back({pool, here, 0});
      left -= here;
    }
  }
  return stages;
}

double ReplicaShaping::Deal(double sequences, double least_rate, std::vector<LayoutStage>* stages) {
  const size_t count = stages->size();
  const LengthMoments& lengths = shapes_.lengths();
  const bool prompts_only = role_ == Role::kPrefill;
  const double micro =
      std::min(static_cast<double>(count),
               prompts_only ? static_cast<double>(count) : std::max(1.0, std::floor(sequences)));
  const double prompts =
      role_ == Role::kBoth ? lengths.uncached_prompt_tokens / lengths.decode_steps : 0;
  const double rows =
      prompts_only
          ? 0
          : std::min(sequences / micro,
                     static_cast<double>(problem_.options.memory.max_step_tokens) / (1 + prompts));
  const double kv = std::max({1.0, LeastKvTokens(role_, lengths, problem_.options),
                              rows * micro * std::max(1.0, lengths.mean_decode_context()) /
                                  (1 - problem_.options.kv_headroom)});
  const auto shape_of = [&](const LayoutStage& of) {
    return static_cast<size_t>(
        shape_of_[static_cast<size_t>(of.pool)][static_cast<size_t>(of.width - 1)]);
  };
  dealt_.resize(count);
  int64_t room = 0;  // known before any seconds are, and mostly too little for many sequences
  for (size_t i = 0; i < count; ++i) {
    const StageShape& shape = shapes_[static_cast<int>(shape_of((*stages)[i]))];
    dealt_[i].most = static_cast<int>(shape.MemoryLayers(PlaceOf(i, count), kv));
    room += dealt_[i].most;
  }
  if (room < shapes_.model().layers) return 0;
  const std::vector<ShapeSeconds>& seconds = shapes_.SecondsAt(role_, rows);
  for (size_t i = 0; i < count; ++i) {
    const ShapeSeconds& of = seconds[shape_of((*stages)[i])];
    dealt_[i].fixed = of.fixed + (i + 1 == count ? of.head : 0);
    dealt_[i].layer = of.layer;
  }
  const auto rate_at = [&](double period) {
    return prompts_only ? 1 / period : rows / (period * lengths.decode_steps);
  };
  const double least_seconds = LeastSlowestSeconds(shapes_.model().layers, dealt_);
  if (rate_at(least_seconds) * kRounding <= least_rate) return 0;
  if (!DealLayersEvenly(shapes_.model().layers, least_seconds, &dealt_)) return 0;
  const double bytes = shapes_.RowsAt(role_, rows) * shapes_.row_bytes();
  double slowest_hop = 0, all_hops = 0;
  for (size_t i = 0; i < count && count > 1; ++i) {
    const LayoutStage &stage = (*stages)[i], &next = (*stages)[(i + 1) % count];
    const LinkSpec& link =
        problem_.graph->Between(layout_.pools[static_cast<size_t>(stage.pool)].machine,
                                layout_.pools[static_cast<size_t>(next.pool)].machine);
    const double hop = i + 1 < count ? SecondsOver(link, bytes) + seconds[shape_of(next)].spread
                                     : SecondsOver(link, kTokenIdBytes * rows);
    slowest_hop = std::max(slowest_hop, hop);
    all_hops += hop;
  }
  const double period = DealFor(micro, slowest_hop, all_hops);
  if (!prompts_only && micro * period > problem_.options.max_tpot_seconds) return 0;
  for (size_t i = 0; i < count; ++i) (*stages)[i].layers = dealt_[i].layers;
  return rate_at(period);
}

// Layers of dealt_, which are dealt evenly, for the shortest period: that of the slowest stage or
// hop, or what all of them take, divided by the micro-batches on their way. Where that is more,
// fast stages take layers over from slow ones until both are the same.
double ReplicaShaping::DealFor(double micro, double slowest_hop, double all_hops) {
  const auto measure = [&] {
    std::pair<double, double> slowest_and_part(slowest_hop, all_hops);
    for (const DealtStage& stage : dealt_) {
      const double seconds = stage.fixed + stage.layer * stage.layers;
      slowest_and_part.first = std::max(slowest_and_part.first, seconds);
      slowest_and_part.second += seconds;
    }
    slowest_and_part.second /= micro;
    return slowest_and_part;
  };
  auto [low, high] = measure();
  double period = std::max(low, high);
  if (high <= low) return period;
  const int layers = shapes_.model().layers;
  leanest_ = dealt_;
  for (int i = 0; i < kLeanSteps; ++i) {
    const double limit = (low + high) / 2;
    const bool fits = DealLayersWithin(layers, limit, &dealt_);
    const auto [slowest, part] = measure();
    (fits && slowest > part ? high : low) = limit;
    if (!fits || std::max(slowest, part) >= period) continue;
    period = std::max(slowest, part);
    leanest_ = dealt_;
  }
  dealt_.swap(leanest_);
  return period;
}

// How many sequences this stage has room for beside so many layers.
double ReplicaShaping::SequencesBeside(int layers, const LayoutStage& stage,
                                       StagePlace place) const {
  const StageShape& shape =
      shapes_[shape_of_[static_cast<size_t>(stage.pool)][static_cast<size_t>(stage.width - 1)]];
  const double kv_tokens = (shape.room(place) / layers - shape.layer_bytes) / shape.kv_token_bytes;
  return (1 - problem_.options.kv_headroom) * kv_tokens /
         std::max(1.0, shapes_.lengths().mean_decode_context()) / kRoundsDown;
}

// What was dealt to the stages for some numbers of sequences, by its rate there. With full
// care also for those beyond which one of the stages could not have a layer more.
void ReplicaShaping::MakeDeals(Care care, std::vector<LayoutStage>* stages) {
  deals_.clear();
  deal_layers_.clear();
  double best = 0, best_sequences = 0;
  std::vector<LayoutStage> best_stages;
  const auto deal = [&](double sequences) {
    const double rate = Deal(sequences, best * kWorthJudging, stages);
    if (rate > best * kWorthJudging) {
      deals_.emplace_back(rate, deal_layers_.size());
      for (const LayoutStage& stage : *stages) deal_layers_.push_back(stage.layers);
    }
    if (rate <= best) return false;
    best = rate;
    best_sequences = sequences;
    if (care == Care::kFull) best_stages = *stages;
    return true;
  };
  double sequences = problem_.options.max_sequences;
  int worse = 0;
  for (int step = 0; step < kMaxSteps && worse < kStepsBelowBest; ++step) {
    if (deal(sequences)) {
      worse = 0;
    } else if (best > 0) {
      ++worse;
    }
    sequences *= kFewerSequences;
  }
  double step = kFewerSequences;
  for (int i = 0; i < kRefinements && best > 0; ++i) {
    step = std::sqrt(step);
    const double from = best_sequences;
    if (!deal(from / step)) deal(from * step);
  }
  const std::vector<LayoutStage> base =
      role_ == Role::kPrefill ? std::vector<LayoutStage>() : best_stages;
  for (size_t i = 0; i < base.size(); ++i) {
    const StagePlace place = PlaceOf(i, base.size());
    if (i > 1 && place == StagePlace::kInner && SameDevices(base[i], base[i - 1])) continue;
    for (int more = 0; more <= kMoreLayers; ++more)
      deal(SequencesBeside(base[i].layers + more, base[i], place));
  }
  std::sort(deals_.begin(), deals_.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
}

const PlacedReplica& ReplicaShaping::Judge(std::vector<LayoutStage> stages, Care care) {
  const auto [at, fresh] = judged_stages_[static_cast<int>(care)].try_emplace(stages);
  PlacedReplica& best = at->second;
  if (!fresh || stages.empty()) return best;
  ++judged_;
  size_t left = care == Care::kQuick ? 1 : kDealsJudged;
  const int* before = nullptr;
  MakeDeals(care, &stages);
  for (const auto& [rate, begin] : deals_) {
    const int* layers = &deal_layers_[begin];
    if (before != nullptr && std::equal(layers, layers + stages.size(), before)) continue;
    before = layers;
    for (size_t i = 0; i < stages.size(); ++i) stages[i].layers = layers[i];
    ReplicaSpec spec = MakeReplica(layout_, stages);
    spec.role = role_;
    const ReplicaRate judged =
        CapacityOf(*problem_.model, spec, shapes_.lengths(), problem_.options);
    if (judged.requests_per_second > best.rate.requests_per_second || best.stages.empty()) {
      best.role = role_;
      best.stages = stages;
      best.rate = judged;
    }
    if (--left == 0) break;
  }
  return best;
}

// Pools of equal devices, links inside and numbers.
std::vector<std::vector<int>> ReplicaShaping::Alike(const Devices& devices) const {
  std::map<std::tuple<int, int>, std::vector<int>> alike;
  for (const auto& [pool, count] : devices) {
    const std::vector<int>& shapes = shape_of_[static_cast<size_t>(pool)];
    alike[{shapes[static_cast<size_t>(std::min<int>(count, static_cast<int>(shapes.size())) - 1)],
           count}]
        .push_back(pool);
  }
  std::vector<std::vector<int>> groups;
  for (auto& [key, pools] : alike) groups.push_back(std::move(pools));
  return groups;
}

void ReplicaShaping::Descend(const Devices& devices, const std::vector<std::vector<int>>& groups,
                             Widths* widths, PlacedReplica* best) {
  for (const std::vector<int>& group : groups) {
    const auto first = std::find_if(devices.begin(), devices.end(),
                                    [&](const auto& entry) { return entry.first == group[0]; });
    std::vector<int> to_try = WidthsToTry(first->second);
    if (devices.size() > group.size()) to_try.push_back(0);
    for (const int width : to_try) {
      Widths other = *widths;
      for (const int pool : group) other[pool] = width;
      if (other == *widths) continue;
      const PlacedReplica& tried = Judge(StagesOf(devices, other), Care::kQuick);
      if (tried.rate.requests_per_second <= best->rate.requests_per_second * kBetter) continue;
      *best = tried;
      *widths = std::move(other);
    }
  }
}

const PlacedReplica& ReplicaShaping::ShapeUniform(const Devices& devices, int width) {
  Widths uniform;
  for (const auto& [pool, count] : devices)
    uniform[pool] = std::min({width, count, MaxWidth(*problem_.model)});
  return Judge(StagesOf(devices, uniform), Care::kQuick);
}

const PlacedReplica& ReplicaShaping::ShapeHalved(const Devices& devices, int width) {
  std::vector<LayoutStage> stages;
  for (const auto& [pool, count] : devices) {
    const int most = std::min(width, MaxWidth(*problem_.model));
    const int wide = count / 2 / most * most, narrow = std::max(1, most / 2);
    for (int left = count; left > 0;) {
      const int here = std::min(left, left > count - wide ? most : narrow);
      stages.push_back({pool, here, 0});
      left -= here;
    }
  }
  return Judge(std::move(stages), Care::kQuick);
}

const PlacedReplica& ReplicaShaping::Shape(const Devices& devices) {
  const auto [at, fresh] = shaped_.try_emplace(devices);
  if (!fresh) return at->second;
  PlacedReplica best;
  Widths widths;
  for (int width = 1; width <= MaxWidth(*problem_.model); width *= 2) {
    Widths uniform;
    bool changed = width == 1;
    for (const auto& [pool, count] : devices) {
      uniform[pool] = std::min({width, count, MaxWidth(*problem_.model)});
      changed = changed || count >= width;
    }
    if (!changed) break;
    const PlacedReplica& tried = Judge(StagesOf(devices, uniform), Care::kQuick);
    if (width > 1 && tried.rate.requests_per_second <= best.rate.requests_per_second) continue;
    best = tried;
    widths = std::move(uniform);
  }
  const std::vector<std::vector<int>> groups = Alike(devices);
  for (int pass = 0; pass < kMaxDescents; ++pass) {
    const double before = best.rate.requests_per_second;
    Descend(devices, groups, &widths, &best);
    if (best.rate.requests_per_second <= before * kBetter) break;
  }
  return at->second = std::move(best);
}

PlacedReplica ReplicaShaping::ShapeLike(const Devices& devices, const Widths& known,
                                        const std::vector<int>& changed) {
  Widths widths = known;
  PlacedReplica best = Judge(StagesOf(devices, widths), Care::kQuick);
  std::vector<std::vector<int>> groups;
  for (const int pool : changed) {
    const bool there = std::any_of(devices.begin(), devices.end(),
                                   [&](const auto& entry) { return entry.first == pool; });
    if (there) groups.push_back({pool});
  }
  Descend(devices, groups, &widths, &best);
  return best;
}

// Blocks of like stages go to another place, or one of them to an end; the last of a block is cut
// in two, or joined with the one before it.
std::vector<std::vector<LayoutStage>> ReplicaShaping::Near(const std::vector<LayoutStage>& stages,
                                                           Care care) const {
  std::vector<std::vector<LayoutStage>> near;
  const std::vector<std::pair<size_t, size_t>> blocks = BlocksOf(stages);
  for (const auto& [begin, end] : blocks) {
    const auto move = [&](size_t from, size_t to) {
      std::vector<LayoutStage>& moved = near.emplace_back(stages);
      const auto part = moved.begin() + static_cast<long>(from);
      const auto rest = moved.begin() + static_cast<long>(end);
      if (to <= from) {
        std::rotate(moved.begin() + static_cast<long>(to), part, rest);
      } else {
        std::rotate(part, rest, moved.begin() + static_cast<long>(to));
      }
    };
    for (const auto& [other_begin, other_end] : blocks) {
      if (other_begin < begin) move(begin, other_begin);
      if (other_begin > begin) move(begin, other_end);
    }
    if (end - begin > 1 && blocks.size() > 1) {
      move(end - 1, 0);
      move(end - 1, stages.size());
    }
    if (care != Care::kFull) continue;
    const LayoutStage& last = stages[end - 1];
    for (const int part : std::set<int>{last.width / 2, last.width - 1}) {
      if (part == 0) continue;
      std::vector<LayoutStage>& cut = near.emplace_back(stages);
      cut[end - 1].width = part;
      cut.insert(cut.begin() + static_cast<long>(end), {last.pool, last.width - part, 0});
    }
    if (end - begin > 1 && 2 * last.width <= MaxWidth(*problem_.model)) {
      std::vector<LayoutStage>& joined = near.emplace_back(stages);
      joined[end - 2].width *= 2;
      joined.erase(joined.begin() + static_cast<long>(end) - 1);
    }
  }
  return near;
}

const PlacedReplica& ReplicaShaping::Refined(const PlacedReplica& replica, Care care) {
  const auto [at, fresh] = refined_[static_cast<int>(care)].try_emplace(replica.stages);
  PlacedReplica& best = at->second;
  if (!fresh) return best;
  best = Judge(replica.stages, care);
  if (best.rate.requests_per_second < replica.rate.requests_per_second) best = replica;
  for (int pass = 0; pass < kMaxRefinings; ++pass) {
    const double before = best.rate.requests_per_second;
    for (std::vector<LayoutStage>& stages : Near(best.stages, care)) {
      const PlacedReplica& tried = Judge(std::move(stages), care);
      if (tried.rate.requests_per_second > best.rate.requests_per_second * kBetter) best = tried;
    }
    if (best.rate.requests_per_second <= before * kBetter) break;
  }
  return best;
}

PlacedReplica ReplicaShaping::RefinedFurther(const PlacedReplica& replica) {
  PlacedReplica best = Refined(replica, Care::kFull);
  while (true) {
    std::vector<PlacedReplica> near;
    for (std::vector<LayoutStage>& stages : Near(best.stages, Care::kFull))
      near.push_back(Judge(std::move(stages), Care::kFull));
    std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) {
      return a.rate.requests_per_second > b.rate.requests_per_second;
    });
    if (near.size() > kFirstSteps) near.resize(kFirstSteps);
    const double before = best.rate.requests_per_second;
    for (const PlacedReplica& first : near) {
      for (std::vector<LayoutStage>& stages : Near(first.stages, Care::kFull)) {
        const PlacedReplica& tried = Judge(std::move(stages), Care::kFull);
        if (tried.rate.requests_per_second > best.rate.requests_per_second * kBetter) best = tried;
      }
    }
    if (best.rate.requests_per_second <= before * kBetter) return best;
  }
}

}  // namespace tessera::scheduler
