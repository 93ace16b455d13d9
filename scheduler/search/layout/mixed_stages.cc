#include "scheduler/search/layout/mixed_stages.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"

namespace tessera::scheduler {
namespace {

constexpr double kTowardsFlops[] = {0, 1.0 / 3, 2.0 / 3, 1};  // from parts by memory bandwidth
constexpr double kAlike = 0.01;     // fractions that differ by less are one cut
constexpr double kRoomUsed = 0.98;  // of a rank: whole granules are larger than its fraction
constexpr size_t kMaxSets = 32;     // of a machine's devices, the largest first
constexpr int kMaxJoinedMachines = 8;

void Normalise(std::vector<double>* parts) {
  const double sum = std::accumulate(parts->begin(), parts->end(), 0.0);
  for (double& part : *parts) part /= sum;
}

// Lowers parts to what ranks have room for, and gives the rest to those with more. False: together
// they have no room.
bool Fit(const std::vector<double>& most, std::vector<double>* parts) {
  if (std::accumulate(most.begin(), most.end(), 0.0) < 1) return false;
  for (size_t round = 0; round < parts->size(); ++round) {
    double excess = 0, below = 0;
    for (size_t r = 0; r < parts->size(); ++r) {
      excess += std::max(0.0, (*parts)[r] - most[r]);
      (*parts)[r] = std::min((*parts)[r], most[r]);
      if ((*parts)[r] < most[r]) below += (*parts)[r];
    }
    if (excess <= 0 || below <= 0) break;
    for (size_t r = 0; r < parts->size(); ++r) {
      if ((*parts)[r] < most[r]) (*parts)[r] *= 1 + excess / below;
    }
  }
  return true;
}

class MixedSets {
 public:
  explicit MixedSets(const PlacementProblem& problem)
      : problem_(problem),
        pools_(problem.graph->pools()),
        longest_(LeastKvTokens(Role::kBoth, MomentsOf(problem.samples), problem.options)),
        max_width_(std::min(kMaxMixedWidth, MaxWidth(*problem.model))) {}

  std::vector<PlacedReplica> Run() {
    const size_t machines = problem_.graph->machines().size();
    std::vector<std::vector<int>> by_machine(machines);
    for (size_t p = 0; p < pools_.size(); ++p)
      by_machine[static_cast<size_t>(pools_[p].machine)].push_back(static_cast<int>(p));
    std::set<std::string> seen;
    for (const std::vector<int>& of : by_machine) {
      if (of.size() > 1 && seen.insert(ShapeOf(of)).second) AddSets(of);
    }
    AddJoined(by_machine);
    return std::move(replicas_);
  }

 private:
  std::string ShapeOf(const std::vector<int>& of) const {
    std::string shape;
    for (const int p : of) {
      const DevicePool& pool = pools_[static_cast<size_t>(p)];
      const LinkSpec& inside = problem_.graph->machines()[static_cast<size_t>(pool.machine)].inside;
      absl::StrAppendFormat(&shape, "%p,%d,%g,%g;", static_cast<const void*>(pool.spec), pool.count,
                            inside.bytes_per_second, inside.latency_seconds);
    }
    return shape;
  }

  // Sets of devices from two pools and more of one machine.
  void AddSets(const std::vector<int>& of) {
    std::vector<std::vector<LayoutPart>> sets = {{}};
    for (const int p : of) {
      std::vector<std::vector<LayoutPart>> more;
      for (const std::vector<LayoutPart>& set : sets) {
        const int used = Devices(set);
        const int count = pools_[static_cast<size_t>(p)].count;
        for (int width = 1; width <= std::min(count, max_width_ - used); ++width) {
          more.push_back(set);
          more.back().push_back({p, width});
        }
      }
      sets.insert(sets.end(), more.begin(), more.end());
    }
    std::erase_if(sets, [](const auto& set) { return set.size() < 2; });
    std::stable_sort(sets.begin(), sets.end(),
                     [](const auto& a, const auto& b) { return Devices(a) > Devices(b); });
    if (sets.size() > kMaxSets) sets.resize(kMaxSets);
    for (const std::vector<LayoutPart>& set : sets) Add(set);
  }

  // The first machines of a shape, two or more, where their links carry a stage.
  void AddJoined(const std::vector<std::vector<int>>& by_machine) {
    std::set<std::string> seen;
    for (size_t m = 0; m < by_machine.size(); ++m) {
      if (by_machine[m].empty()) continue;
      const std::string shape = ShapeOf(by_machine[m]);
      if (!seen.insert(shape).second) continue;
      std::vector<size_t> joined = {m};
      std::vector<LayoutPart> set = Whole(by_machine[m]);
      for (size_t n = m + 1; n < by_machine.size() && joined.size() < kMaxJoinedMachines; ++n) {
        if (ShapeOf(by_machine[n]) != shape || !JoinedTo(joined, n)) continue;
        joined.push_back(n);
        for (const LayoutPart& part : Whole(by_machine[n])) set.push_back(part);
        if (Devices(set) > max_width_) break;
        if (std::has_single_bit(joined.size())) Add(set);
      }
    }
  }

  bool JoinedTo(const std::vector<size_t>& joined, size_t other) const {
    return std::all_of(joined.begin(), joined.end(), [&](size_t m) {
      const int a = static_cast<int>(m), b = static_cast<int>(other);
      return problem_.graph->Between(a, b).bytes_per_second >= kMinMixedBytesPerSecond &&
             problem_.graph->Between(b, a).bytes_per_second >= kMinMixedBytesPerSecond;
    });
  }

  std::vector<LayoutPart> Whole(const std::vector<int>& of) const {
    std::vector<LayoutPart> parts;
    for (const int p : of) parts.push_back({p, pools_[static_cast<size_t>(p)].count});
    return parts;
  }

  static int Devices(const std::vector<LayoutPart>& set) {
    int devices = 0;
    for (const LayoutPart& part : set) devices += part.width;
    return devices;
  }

  void Add(const std::vector<LayoutPart>& set) {
    std::vector<const DeviceSpec*> ranks;
    for (const LayoutPart& part : set) {
      ranks.insert(ranks.end(), static_cast<size_t>(part.width),
                   pools_[static_cast<size_t>(part.pool)].spec);
    }
    const auto cuts = MixedFractions(*problem_.model, ranks, problem_.options.memory, longest_);
    for (const std::vector<double>& fractions : cuts) {
      LayoutStage stage = {set.front().pool, set.front().width, problem_.model->layers};
      stage.mix = std::make_shared<const StageMix>(
          StageMix{std::vector<LayoutPart>(set.begin() + 1, set.end()), fractions});
      replicas_.emplace_back().stages.push_back(std::move(stage));
    }
  }

  const PlacementProblem& problem_;
  const std::vector<DevicePool>& pools_;
  const double longest_;  // KV tokens
  const int max_width_;
  std::vector<PlacedReplica> replicas_;
};

}  // namespace

std::vector<std::vector<double>> MixedFractions(const ModelShape& model,
                                                std::span<const DeviceSpec* const> ranks,
                                                const MemoryOptions& memory, double kv_tokens,
                                                double part) {
  const double bytes = part * (TotalWeightBytes(model) + SequenceBytes(model, kv_tokens));
  std::vector<double> bandwidth, flops, most;
  for (const DeviceSpec* rank : ranks) {
    bandwidth.push_back(WeightsReadRate(model, *rank));
    flops.push_back(ProductFlops(model, *rank));
    const double room = rank->memory_bytes * memory.utilisation - memory.runtime_reserve_bytes;
    most.push_back(std::max(1e-6, kRoomUsed * room / bytes));
  }
  std::vector<std::vector<double>> tried;
  for (const double towards : kTowardsFlops) {
    std::vector<double>& parts = tried.emplace_back();
    for (size_t r = 0; r < ranks.size(); ++r)
      parts.push_back(std::pow(bandwidth[r], 1 - towards) * std::pow(flops[r], towards));
  }
  tried.push_back(most);
  std::vector<std::vector<double>> cuts;
  for (std::vector<double>& parts : tried) {
    Normalise(&parts);
    if (!Fit(most, &parts)) continue;
    const bool known = std::any_of(cuts.begin(), cuts.end(), [&](const auto& cut) {
      return std::equal(cut.begin(), cut.end(), parts.begin(),
                        [](double a, double b) { return std::abs(a - b) < kAlike; });
    });
    if (!known) cuts.push_back(std::move(parts));
  }
  return cuts;
}

std::vector<PlacedReplica> MixedReplicas(const PlacementProblem& problem) {
  return MixedSets(problem).Run();
}

}  // namespace tessera::scheduler
