// Whether `best` finds the best placement there is, and proves it: 200 seeded instances of 4-8
// devices, 2-4 kinds, 2-3 machines and 8-16 layers against every way to deal the devices to
// replicas and roles with every layout. Bars: all 200 equal and proved; of the optima at least a
// third are asymmetric, a fifth split prefill and decode, a fifth leave a device idle, and for a
// fifth no even plan fits. Arguments: how many instances, the first seed.
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "scheduler/search/best/configuration_search.h"
#include "tests/scheduler/search/placement_census.h"

namespace tessera::tests {
namespace {

constexpr double kEqual = 1e-6;

struct Census {
  int tried = 0, equal = 0, proved = 0, asymmetric = 0, split = 0, idle = 0, uneven = 0, links = 0;
  long layouts = 0;
  double slowest_seconds = 0, seconds = 0;

  void Add(int seed) {
    CensusInstance instance;
    MakeCensusInstance(seed, &instance);
    const EnumeratedPlacement best = EnumeratePlacements(instance.problem);
    layouts += best.layouts;
    if (best.requests_per_second <= 0) return;  // nothing fits: no optimum to reach
    ++tried;
    const std::clock_t start = std::clock();
    const absl::StatusOr<scheduler::Placement> found =
        scheduler::SearchConfigurations(instance.problem);
    const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    seconds += took;
    slowest_seconds = std::max(slowest_seconds, took);
    const scheduler::Placement placement = found.value_or(scheduler::Placement());
    const Verdict verdict = JudgeFound(placement, best);
    equal += verdict.optimal ? 1 : 0;
    proved += verdict.proved ? 1 : 0;
    if (!verdict.optimal || !verdict.proved) {
      std::printf(
          "seed %d: %.6f requests/s found, bound %.6f; %.6f possible, %.6f over free links\n", seed,
          placement.requests_per_second, placement.upper_bound, best.requests_per_second,
          best.over_free_links);
    }
    const PlacementTraits traits = TraitsOf(instance.problem, best);
    asymmetric += traits.asymmetric ? 1 : 0;
    split += traits.split ? 1 : 0;
    idle += traits.idle ? 1 : 0;
    uneven += traits.even_misfits ? 1 : 0;
    links += best.over_free_links > best.requests_per_second * (1 + kEqual) ? 1 : 0;
  }

  bool Report() const {
    std::printf(
        "%d of %d instances at the optimum (%ld layouts tried), %d proved; asymmetric %d, split %d "
        "(links bind in %d), idle devices %d, even plan does not fit %d; best took %.2f s on "
        "average, %.2f s at most\n",
        equal, tried, layouts, proved, asymmetric, split, links, idle, uneven, seconds / tried,
        slowest_seconds);
    return equal == tried && proved == tried && 3 * asymmetric >= tried && 5 * split >= tried &&
           5 * idle >= tried && 5 * uneven >= tried;
  }
};

}  // namespace
}  // namespace tessera::tests

int main(int argc, char** argv) {
  const int instances = argc > 1 ? std::atoi(argv[1]) : 200;
  tessera::tests::Census census;
  for (int seed = argc > 2 ? std::atoi(argv[2]) : 0; census.tried < instances; ++seed)
    census.Add(seed);
  const bool met = census.Report();
  std::printf("%s\n", met ? "all bars met" : "A BAR WAS MISSED");
  return met ? 0 : 1;
}
