// How the ranks of a stage agree on a group: on their devices where all of them can, else in memory
// that they share where they are on one machine, else over their links.
//
// Each rank says to rank 0 what its device can (kRankDevice); rank 0 decides, and sends
// kSumOnDevices with the id of a group, kSumInSharedMemory or kSumOverLinks. Where it decides for
// the devices, all ranks try to join, say why they could not (kDevicesJoined, empty: they could),
// and rank 0 decides again: one that could not takes them all to the host.
//
// Blocks, in bounded time; one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/collectives/group.h"
#include "kernels/collectives/group_maker.h"
#include "kernels/links/link.h"

namespace tessera::worker {

// What a rank's device can. As text: both, with a line break between them.
struct RankDevice {
  std::string device_id;  // GroupMaker's; empty: it reaches other devices through the host alone
  std::string library;
};

// links[r] leads to rank r; the rank's own is null. `maker`: of this rank's device, or null.
absl::StatusOr<std::unique_ptr<kernels::Group>> OpenStageGroup(
    int rank, std::vector<std::shared_ptr<kernels::Link>> links, kernels::GroupMaker* maker,
    double wait_seconds, const std::function<bool()>& cancelled);

// Why ranks with these devices sum on the host; empty: their devices can, with one another.
std::string WhyThroughHost(const std::vector<RankDevice>& devices);

}  // namespace tessera::worker
