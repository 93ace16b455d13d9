#include <algorithm>
#include <utility>

#include "scheduler/search/layout/device_groups.h"

namespace tessera::scheduler {
namespace {

std::vector<int> PoolsOf(const DeviceGroup& group) {
  std::vector<int> pools;
  for (size_t p = 0; p < group.counts.size(); ++p) {
    if (group.counts[p] > 0) pools.push_back(static_cast<int>(p));
  }
  return pools;
}

int& CountOf(DeviceGroup* group, int pool) { return group->counts[static_cast<size_t>(pool)]; }

// Two different indices below n; n >= 2.
std::pair<int, int> TwoOf(SeededRandom* random, int n) {
  const int a = random->Below(n), b = random->Below(n - 1);
  return {a, b < a ? b : b + 1};
}

}  // namespace

bool MergeTwo(SeededRandom* random, Grouping* grouping) {
  if (grouping->size() < 2) return false;
  const auto [a, b] = TwoOf(random, static_cast<int>(grouping->size()));
  DeviceGroup& into = (*grouping)[static_cast<size_t>(a)];
  DeviceGroup& from = (*grouping)[static_cast<size_t>(b)];
  for (size_t p = 0; p < into.counts.size(); ++p)
    into.counts[p] += std::exchange(from.counts[p], 0);
  Normalise(grouping);
  return true;
}

bool SplitOne(SeededRandom* random, Grouping* grouping) {
  if (grouping->empty()) return false;
  DeviceGroup& group =
      (*grouping)[static_cast<size_t>(random->Below(static_cast<int>(grouping->size())))];
  const std::vector<int> pools = PoolsOf(group);
  DeviceGroup part;
  part.role = group.role;
  part.counts.assign(group.counts.size(), 0);
  if (pools.size() == 1) {
    const int count = CountOf(&group, pools[0]);
    if (count < 2) return false;
    // The halves most often: widths that divide heads are powers of two.
    const int share = random->Below(2) == 0 ? count / 2 : 1 + random->Below(count - 1);
    CountOf(&part, pools[0]) = share;
    CountOf(&group, pools[0]) -= share;
  } else {
    for (const int pool : pools) {
      if (random->Below(2) == 0) continue;
      CountOf(&part, pool) = std::exchange(CountOf(&group, pool), 0);
    }
    if (part.devices() == 0 || group.devices() == 0) {
      const int pool = pools[static_cast<size_t>(random->Below(static_cast<int>(pools.size())))];
      std::swap(CountOf(&part, pool), CountOf(&group, pool));
    }
  }
  grouping->push_back(part);
  Normalise(grouping);
  return true;
}

bool MoveDevices(SeededRandom* random, const GroupLayouts& layouts, Grouping* grouping) {
  DeviceGroup idle = layouts.Everything(Role::kBoth);
  for (const DeviceGroup& group : *grouping) {
    for (size_t p = 0; p < idle.counts.size(); ++p) idle.counts[p] -= group.counts[p];
  }
  // The idle devices stand last as a source, a new group as a target.
  const int groups = static_cast<int>(grouping->size());
  const int from = random->Below(groups + (idle.devices() > 0 ? 1 : 0));
  int to = random->Below(groups + 1);
  if (to == from) to = groups;
  DeviceGroup fresh;
  fresh.counts.assign(idle.counts.size(), 0);
  fresh.role = from < groups
                   ? (*grouping)[static_cast<size_t>(from)].role
                   : (layouts.MaySplit() && groups > 0 ? (*grouping)[0].role : Role::kBoth);
  DeviceGroup& source = from < groups ? (*grouping)[static_cast<size_t>(from)] : idle;
  DeviceGroup& target = to < groups ? (*grouping)[static_cast<size_t>(to)] : fresh;
  const std::vector<int> pools = PoolsOf(source);
  if (pools.empty() || &source == &target) return false;
  const int pool = pools[static_cast<size_t>(random->Below(static_cast<int>(pools.size())))];
  const int devices = random->Below(2) == 0 ? 1 : CountOf(&source, pool);
  CountOf(&source, pool) -= devices;
  CountOf(&target, pool) += devices;
  if (to == groups) grouping->push_back(fresh);
  Normalise(grouping);
  return true;
}

bool SwapDevices(SeededRandom* random, Grouping* grouping) {
  if (grouping->size() < 2) return false;
  const auto [a, b] = TwoOf(random, static_cast<int>(grouping->size()));
  DeviceGroup& first = (*grouping)[static_cast<size_t>(a)];
  DeviceGroup& second = (*grouping)[static_cast<size_t>(b)];
  const std::vector<int> here = PoolsOf(first), there = PoolsOf(second);
  const int p = here[static_cast<size_t>(random->Below(static_cast<int>(here.size())))];
  const int q = there[static_cast<size_t>(random->Below(static_cast<int>(there.size())))];
  if (p == q) return false;
  const bool whole = random->Below(2) == 0;
  const int give = whole ? CountOf(&first, p) : 1, take = whole ? CountOf(&second, q) : 1;
  CountOf(&first, p) -= give;
  CountOf(&second, p) += give;
  CountOf(&second, q) -= take;
  CountOf(&first, q) += take;
  Normalise(grouping);
  return true;
}

Grouping ClusterByLinks(const PlacementProblem& problem, int groups) {
  const std::vector<DevicePool>& pools = problem.graph->pools();
  std::vector<std::vector<size_t>> clusters;
  for (size_t p = 0; p < pools.size(); ++p) clusters.push_back({p});
  // The mean link between two clusters counts (average linkage), so one fast pair joins no sites.
  const auto affinity = [&](const std::vector<size_t>& a, const std::vector<size_t>& b) {
    double sum = 0;
    for (const size_t p : a) {
      for (const size_t q : b)
        sum += problem.graph->Between(pools[p].machine, pools[q].machine).bytes_per_second;
    }
    return sum / static_cast<double>(a.size() * b.size());
  };
  while (static_cast<int>(clusters.size()) > std::max(1, groups)) {
    size_t best_a = 0, best_b = 1;
    double best = -1;
    for (size_t a = 0; a < clusters.size(); ++a) {
      for (size_t b = a + 1; b < clusters.size(); ++b) {
        // Equal links: the two smallest join, so groups stay of like size.
        const double value =
            affinity(clusters[a], clusters[b]) /
            (1 + 1e-6 * static_cast<double>(clusters[a].size() + clusters[b].size()));
        if (value <= best) continue;
        best = value;
        best_a = a;
        best_b = b;
      }
    }
    clusters[best_a].insert(clusters[best_a].end(), clusters[best_b].begin(),
                            clusters[best_b].end());
    clusters.erase(clusters.begin() + static_cast<std::ptrdiff_t>(best_b));
  }
  Grouping grouping;
  const int cuts = std::max(1, groups / std::max(1, static_cast<int>(clusters.size())));
  for (const std::vector<size_t>& cluster : clusters) {
    for (int part = 0; part < cuts; ++part) {
      DeviceGroup group;
      group.counts.assign(pools.size(), 0);
      for (const size_t p : cluster)
        group.counts[p] = pools[p].count * (part + 1) / cuts - pools[p].count * part / cuts;
      grouping.push_back(group);
    }
  }
  Normalise(&grouping);
  return grouping;
}

}  // namespace tessera::scheduler
