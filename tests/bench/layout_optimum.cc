// Whether the stage layout is the best there is: 200 seeded instances of 4-8 devices against every
// layout, tried one by one. Bars: all 200 equal; at least a third have unlike stages, a fifth leave
// a device idle, and a fifth would not hold an even pipeline over all devices.
#include <cmath>
#include <cstdio>

#include "tests/scheduler/search/layout_enumerator.h"

namespace tessera::tests {
namespace {

constexpr int kInstances = 200;

bool Unlike(const Enumerated& best) {
  for (const auto& stage : best.stages) {
    if (stage.width != best.stages[0].width || stage.layers != best.stages[0].layers) return true;
  }
  return false;
}

bool LeavesIdle(const Enumerated& best, const scheduler::LayoutProblem& problem) {
  int used = 0, all = 0;
  for (const auto& stage : best.stages) used += stage.width;
  for (const auto& pool : problem.pools) all += pool.count;
  return used < all;
}

// One stage per device, layers as even as they go, pools in order.
bool EvenFits(const scheduler::LayoutProblem& problem) {
  int devices = 0;
  for (const auto& pool : problem.pools) devices += pool.count;
  std::vector<scheduler::LayoutStage> stages;
  for (size_t pool = 0; pool < problem.pools.size(); ++pool) {
    for (int i = 0; i < problem.pools[pool].count; ++i) {
      const int index = static_cast<int>(stages.size());
      const int layers =
          problem.model->layers * (index + 1) / devices - problem.model->layers * index / devices;
      stages.push_back({static_cast<int>(pool), 1, layers});
    }
  }
  const scheduler::ReplicaSpec replica = MakeReplica(problem, stages);
  return CheckMemory(*problem.model, replica.stages, problem.options.memory,
                     problem.lengths.max_sequence_tokens)
      .ok();
}

int Main() {
  int tried = 0, equal = 0, unlike = 0, idle = 0, uneven = 0;
  long layouts = 0;
  for (int seed = 0; tried < kInstances; ++seed) {
    // Most are small: the number of layouts grows by a factor of ten with each device.
    const bool large = seed % 10 == 0;
    LayoutInstance instance;
    MakeLayoutInstance(seed, large ? 8 : 6, large ? 9 : 16 - seed % 5, &instance);
    instance.problem.exact = true;
    const Enumerated best = EnumerateLayouts(instance.problem);
    if (best.requests_per_second <= 0) continue;  // nothing fits: no optimum to reach
    ++tried;
    const scheduler::Layout found = BestLayout(instance.problem);
    layouts += best.layouts;
    if (std::abs(found.rate.requests_per_second / best.requests_per_second - 1) < 1e-9) {
      ++equal;
    } else {
      std::printf("seed %d: %.6f requests/s found, %.6f possible\n", seed,
                  found.rate.requests_per_second, best.requests_per_second);
    }
    unlike += Unlike(best) ? 1 : 0;
    idle += LeavesIdle(best, instance.problem) ? 1 : 0;
    uneven += EvenFits(instance.problem) ? 0 : 1;
  }
  std::printf(
      "%d of %d instances at the optimum of %ld layouts; unlike stages %d, idle devices %d, even "
      "plan does "
      "not fit %d\n",
      equal, kInstances, layouts, unlike, idle, uneven);
  return equal == kInstances && 3 * unlike >= kInstances && 5 * idle >= kInstances &&
                 5 * uneven >= kInstances
             ? 0
             : 1;
}

}  // namespace
}  // namespace tessera::tests

int main() { return tessera::tests::Main(); }
