// Changes to a cluster description in a few words, for `tessera plan --what-if`.
//
//   +2 L40S [on MACHINE | at SITE]   two more; on a machine of their own unless one is named
//   -machine3, -oregon               a machine, or all machines of a site
//   -2 L40S [on MACHINE | at SITE]   two fewer, from the machines named last
//   link a-b 10 Gbit/s [0.1 ms]      between two machines or sites, both directions
//   uplink a 10 Gbit/s [0.1 ms]      of a machine or site
//   tier rack 10 Gbit/s [0.1 ms]     machine, rack, site or region
//   budget 20 USD/h
// joined by commas; "+L40S" and "-L40S" are of one. One of several like machines that a market
// offers is called by its number, h100x2.3. Thread rule: pure functions. Errors: InvalidArgument
// naming the change and the reason.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/cluster.pb.h"

namespace tessera::scheduler {

// The new machine stands beside the first one that has such devices, else beside the first one, and
// is called "added" (added-2, ...).
absl::Status ApplyChanges(std::string_view changes, v1::Cluster* cluster);

// The cluster without these, named as the devices of a plan name them.
absl::Status RemoveMachines(const std::set<std::string>& names, v1::Cluster* cluster);

}  // namespace tessera::scheduler
