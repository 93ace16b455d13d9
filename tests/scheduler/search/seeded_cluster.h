// Seeded clusters of any size for tests and benchmarks: machines of 36 shapes (1-8 devices of
// twelve kinds, some of two kinds), unequal uplinks, unequal links between sites. Deterministic:
// the same seed gives the same text everywhere.
#pragma once

#include <string>

namespace tessera::tests {

struct SeededClusterOptions {
  int seed = 0;
  int devices = 8;  // in all: the last machine is cut to fit
  int sites = 1;    // machines are dealt to them in turn
  // Racks, cards without peer access and direct links between machines as well.
  bool unlike_links = false;
  // Other machines: some that compute much beside some that read much, on a fast network.
  bool splitting = false;
};

// YAML as people write it, so that an instance can be kept as a file and planned by hand.
std::string SeededCluster(const SeededClusterOptions& options);

}  // namespace tessera::tests
