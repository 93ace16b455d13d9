// Seeded clusters of any size: machines of 36 shapes (1-8 devices of twelve kinds, some of two
// kinds), unequal links inside machines, to their sites and between sites. Deterministic.
#pragma once

#include "proto/cluster.pb.h"

namespace tessera::tests {

// As many machines as it takes for `devices` devices, dealt to `sites` sites in turn.
v1::Cluster GenerateCluster(int seed, int devices, int sites);

}  // namespace tessera::tests
