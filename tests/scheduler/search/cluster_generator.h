// Seeded cluster descriptions to compare searches on: machines of one to eight cards of ten kinds
// in one to three sites, links unlike.
#pragma once

#include <string>

namespace tessera::tests {

// YAML as people write it, so that an instance can be kept as a file and planned by hand. At least
// `devices` devices, fewer than eight more. The same seed gives the same text everywhere.
std::string GeneratedCluster(int seed, int devices);

}  // namespace tessera::tests
