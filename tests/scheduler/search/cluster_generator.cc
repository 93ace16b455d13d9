#include "tests/scheduler/search/cluster_generator.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "scheduler/search/seeded_random.h"

namespace tessera::tests {
namespace {

using scheduler::SeededRandom;

constexpr const char* kKinds[] = {"H100-SXM", "A100-80", "A100-40", "L40S",    "A6000",
                                  "A40",      "V100-32", "A5000",   "RTX3090", "L4"};
// Gbit/s: what networks between machines have.
constexpr double kNetworks[] = {10, 25, 40, 100, 200};

template <typename T, size_t n>
const T& Any(SeededRandom* random, const T (&values)[n]) {
  return values[random->Below(static_cast<int>(n))];
}

// Two groups of cards in a machine of every sixth; even numbers are more usual.
std::string Groups(SeededRandom* random, int* devices) {
  const int sizes[] = {1, 2, 2, 3, 4, 4, 4, 5, 6, 8, 8};
  const int count = Any(random, sizes);
  *devices = count;
  const char* first = Any(random, kKinds);
  if (count < 2 || random->Below(6) != 0)
    return absl::StrFormat("{kind: %s, count: %d}", first, count);
  const char* second = Any(random, kKinds);
  const int part = 1 + random->Below(count - 1);
  if (first == second) return absl::StrFormat("{kind: %s, count: %d}", first, count);
  return absl::StrFormat("{kind: %s, count: %d}, {kind: %s, count: %d}", first, part, second,
                         count - part);
}

}  // namespace

std::string GeneratedCluster(int seed, int devices) {
  SeededRandom random(static_cast<uint64_t>(seed) * 7919 + 17);
  const int sites = 1 + random.Below(3);
  std::string text =
      absl::StrFormat("# generated: seed %d, %d devices or more\nmachines:\n", seed, devices);
  int machines = 0;
  for (int placed = 0; placed < devices; ++machines) {
    int here = 0;
    const std::string groups = Groups(&random, &here);
    placed += here;
    text += absl::StrFormat("- {name: m%d, site: s%d, rack: r%d, devices: [%s]", machines,
                            random.Below(sites), random.Below(2), groups);
    // Cards without peer access fall back to about 4 GB/s.
    if (random.Below(4) == 0) text += ", inside: {bandwidth: 4 GB/s, latency: 30 us}";
    if (random.Below(5) == 0) {
      text += absl::StrFormat(", uplink: {bandwidth: %g Gbit/s, latency: 20 us}",
                              Any(&random, kNetworks));
    }
    text += "}\n";
  }
  text += absl::StrFormat(
      "tiers:\n  rack: {bandwidth: %g Gbit/s, latency: 20 us}\n"
      "  site: {bandwidth: %g Gbit/s, latency: 50 us}\n"
      "  region: {bandwidth: %g Gbit/s, latency: %d ms}\n",
      Any(&random, kNetworks), Any(&random, kNetworks), 0.5 + 4 * random.Unit(),
      2 + random.Below(60));
  if (machines < 2) return text;
  text += "links:\n";
  for (int i = 0; i < machines / 3 + 1; ++i) {
    const int from = random.Below(machines),
              to = (from + 1 + random.Below(machines - 1)) % machines;
    text +=
        absl::StrFormat("- {from: m%d, to: m%d, link: {bandwidth: %g Gbit/s, latency: %d us}}\n",
                        from, to, Any(&random, kNetworks), 10 + random.Below(90));
  }
  return text;
}

}  // namespace tessera::tests
