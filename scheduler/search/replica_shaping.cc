#include "scheduler/search/replica_shaping.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace tessera::scheduler {
namespace {

constexpr double kFewerSequences = 0.8408964152537145;  // 2^(-1/4): steps of what is tried
constexpr int kMostSteps = 32;
constexpr int kStepsBelowBest = 4;  // that may be worse before the search for fewer ends
constexpr int kMostDescents = 3;    // over all pools
constexpr double kBetter = 1 + 1e-9;

StagePlace PlaceOf(size_t index, size_t stages) {
  if (stages == 1) return StagePlace::kOnly;
  if (index == 0) return StagePlace::kFirst;
  return index + 1 == stages ? StagePlace::kLast : StagePlace::kInner;
}

double SecondsOver(const LinkSpec& link, double bytes) {
  return link.latency_seconds + bytes / link.bytes_per_second;
}

}  // namespace

ReplicaShaping::ReplicaShaping(const PlacementProblem& problem, StageShapes* shapes)
    : problem_(problem), shapes_(*shapes) {
  layout_.model = problem.model;
  layout_.graph = problem.graph;
  for (const DevicePool& pool : problem.graph->pools()) {
    layout_.pools.push_back({pool.spec, pool.machine, pool.count});
    const LinkSpec& inside = problem.graph->machines()[static_cast<size_t>(pool.machine)].inside;
    std::vector<int>& by_width = shape_of_.emplace_back();
    const int most = std::min(pool.count, MaxWidth(*problem.model));
    for (int width = 1; width <= most; ++width)
      by_width.push_back(shapes->Intern(*pool.spec, inside, width));
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

double ReplicaShaping::Deal(double sequences, std::vector<LayoutStage>* stages) {
  const size_t count = stages->size();
  const LengthMoments& lengths = shapes_.lengths();
  const double micro = std::min(static_cast<double>(count), std::max(1.0, std::floor(sequences)));
  double rows = sequences / micro;
  const double prompts = lengths.uncached_prompt_tokens / lengths.decode_steps;
  rows =
      std::min(rows, static_cast<double>(shapes_.options().memory.max_step_tokens) / (1 + prompts));
  const double kv = std::max({1.0, lengths.max_sequence_tokens,
                              rows * micro * std::max(1.0, lengths.mean_decode_context()) /
                                  (1 - shapes_.options().kv_headroom)});
  const std::vector<ShapeSeconds>& seconds = shapes_.SecondsAt(Role::kBoth, rows);
  std::vector<int> most(count);
  std::vector<double> until(count);  // of the stage with one layer more
  int rest = shapes_.model().layers - static_cast<int>(count);
  if (rest < 0) return 0;
  for (size_t i = 0; i < count; ++i) {
    LayoutStage& stage = (*stages)[i];
    const int shape =
        shape_of_[static_cast<size_t>(stage.pool)][static_cast<size_t>(stage.width - 1)];
    const ShapeSeconds& s = seconds[static_cast<size_t>(shape)];
    most[i] = static_cast<int>(shapes_[shape].MemoryLayers(PlaceOf(i, count), kv));
    if (most[i] < 1) return 0;
    stage.layers = 1;
    until[i] = s.fixed + 2 * s.layer + (i + 1 == count ? s.head : 0);
  }
  for (; rest > 0; --rest) {
    size_t best = count;
    for (size_t i = 0; i < count; ++i) {
      if ((*stages)[i].layers < most[i] && (best == count || until[i] < until[best])) best = i;
    }
    if (best == count) return 0;
    const LayoutStage& stage = (*stages)[best];
    const int shape =
        shape_of_[static_cast<size_t>(stage.pool)][static_cast<size_t>(stage.width - 1)];
    ++(*stages)[best].layers;
    until[best] += seconds[static_cast<size_t>(shape)].layer;
  }
  const double bytes = shapes_.RowsAt(Role::kBoth, rows) * shapes_.row_bytes();
  double slowest = 0, sum = 0;
  for (size_t i = 0; i < count; ++i) {
    const LayoutStage& stage = (*stages)[i];
    const LayoutStage& next = (*stages)[(i + 1) % count];
    const auto shape_of = [&](const LayoutStage& of) {
      return static_cast<size_t>(
          shape_of_[static_cast<size_t>(of.pool)][static_cast<size_t>(of.width - 1)]);
    };
    const double stage_seconds = until[i] - seconds[shape_of(stage)].layer;
    double hop = 0;
    if (count > 1) {
      const LinkSpec& link =
          problem_.graph->Between(layout_.pools[static_cast<size_t>(stage.pool)].machine,
                                  layout_.pools[static_cast<size_t>(next.pool)].machine);
      hop = i + 1 < count ? SecondsOver(link, bytes) + seconds[shape_of(next)].spread
                          : SecondsOver(link, kTokenIdBytes * rows);
    }
    slowest = std::max({slowest, stage_seconds, hop});
    sum += stage_seconds + hop;
  }
  const double period = std::max(slowest, sum / micro);
  if (micro * period > shapes_.options().max_tpot_seconds) return 0;
  return rows / (period * lengths.decode_steps);
}

PlacedReplica ReplicaShaping::Judge(const Devices& devices, const Widths& widths) {
  PlacedReplica replica;
  ++judged_;
  std::vector<LayoutStage> stages = StagesOf(devices, widths);
  if (stages.empty()) return replica;
  double best = 0, sequences = shapes_.options().max_sequences;
  int worse = 0;
  for (int step = 0; step < kMostSteps && worse < kStepsBelowBest; ++step) {
    const double rate = Deal(sequences, &stages);
    if (rate > best) {
      best = rate;
      worse = 0;
      replica.stages = stages;
    } else if (best > 0) {
      ++worse;
    }
    sequences *= kFewerSequences;
  }
  if (best <= 0) return {};
  ReplicaSpec spec = MakeReplica(layout_, replica.stages);
  spec.role = Role::kBoth;
  replica.rate = CapacityOf(*problem_.model, spec, shapes_.lengths(), problem_.options);
  return replica;
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
      PlacedReplica tried = Judge(devices, other);
      if (tried.rate.requests_per_second <= best->rate.requests_per_second * kBetter) continue;
      *best = std::move(tried);
      *widths = std::move(other);
    }
  }
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
    PlacedReplica tried = Judge(devices, uniform);
    if (width > 1 && tried.rate.requests_per_second <= best.rate.requests_per_second) continue;
    best = std::move(tried);
    widths = std::move(uniform);
  }
  const std::vector<std::vector<int>> groups = Alike(devices);
  for (int pass = 0; pass < kMostDescents; ++pass) {
    const double before = best.rate.requests_per_second;
    Descend(devices, groups, &widths, &best);
    if (best.rate.requests_per_second <= before * kBetter) break;
  }
  return at->second = std::move(best);
}

PlacedReplica ReplicaShaping::ShapeLike(const Devices& devices, const Widths& known,
                                        const std::vector<int>& changed) {
  Widths widths = known;
  PlacedReplica best = Judge(devices, widths);
  std::vector<std::vector<int>> groups;
  for (const int pool : changed) {
    const bool there = std::any_of(devices.begin(), devices.end(),
                                   [&](const auto& entry) { return entry.first == pool; });
    if (there) groups.push_back({pool});
  }
  Descend(devices, groups, &widths, &best);
  return best;
}

}  // namespace tessera::scheduler
