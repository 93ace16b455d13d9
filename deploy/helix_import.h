// Reads a cluster in the INI format of Helix's public artifact into our description.
//
//   [ComputeNode-3]          one machine: "node-3"
//   type=L4x2                two L4; A100 is its 40 GB card, V100 its 16 GB one
//   [Link-0-3]               both directions, unless [Link-3-0] is there as well
//   bandwidth=1000 * mbps    kbps, mbps, gbps are 1e3, 1e6, 1e9 BYTES per second there
//   latency=1 * MilliSec     Sec, MilliSec, MicroSec
//   [L4x2]                   a profile (of the same file or a second one)
//   inbound_nic_speed=10 * gbps
// Links of source and sink, disk speeds and memory sizes are left out: our coordinator is no node,
// and our catalogue has the cards. The most frequent link becomes the tier, the others pairs.
// Thread rule: pure functions. Errors: InvalidArgument naming file, line and reason.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera::deploy {

// cluster.yaml as text. `profiles`: text of the second file, may be empty.
absl::StatusOr<std::string> ImportHelixCluster(std::string_view text, std::string_view file,
                                               std::string_view profiles,
                                               std::string_view profiles_file);

}  // namespace tessera::deploy
