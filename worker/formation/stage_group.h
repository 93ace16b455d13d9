// How the ranks of a stage agree on a group: on their devices where all of them can, else in memory
// that they share where they are on one machine, else over their links.
//
// Each rank says to rank 0 what its device can (kRankDevice); rank 0 decides, and sends
// kSumOnDevices with the id of a group, kSumInSharedMemory or kSumOverLinks. Where it decides for
// the devices, all ranks try to join, say why they could not (kDevicesJoined, empty: they could),
// and rank 0 decides again: one that could not takes them all to the host.
//
// Where all ranks are on one machine, on devices of one kind that map memory of the host, small
// sums are made by the devices in memory that the ranks share, beside whatever group there is: the
// last frame above says so (kMapsSums). Rank 0 passes that memory, all ranks map it and say why
// they could not (kSumsMapped, empty: they could), and rank 0 tells all whether they use it.
//
// Blocks, in bounded time; one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/collectives/device_sums.h"
#include "kernels/collectives/group.h"
#include "kernels/collectives/group_maker.h"
#include "kernels/links/link.h"

namespace tessera::worker {

// What a rank's device can, GroupMaker's strings. As text: all, with line breaks between them.
struct RankDevice {
  std::string device_id;
  std::string library;    // empty: it reaches devices of other machines through the host alone
  std::string sums_kind;  // empty: it maps no memory that ranks share
};

struct StageGroup {
  std::unique_ptr<kernels::Group> group;
  std::unique_ptr<kernels::DeviceSums> sums;  // null: the group sums everything
};

// links[r] leads to rank r; the rank's own is null. `maker`: of this rank's device, or null.
absl::StatusOr<StageGroup> OpenStageGroup(int rank,
                                          std::vector<std::shared_ptr<kernels::Link>> links,
                                          kernels::GroupMaker* maker, double wait_seconds,
                                          const std::function<bool()>& cancelled);

// Why ranks with these devices sum on the host; empty: their devices can, with one another.
std::string WhyThroughHost(const std::vector<RankDevice>& devices);
// Why ranks with these devices, on one machine, make no sums in memory that all of them map; empty:
// they can.
std::string WhyNotMapped(const std::vector<RankDevice>& devices);
// The same of devices that have names.
std::string WhyNotMapped(const std::vector<RankDevice>& devices,
                         const std::function<std::string(size_t)>& name);

// What a device can as text, of its maker or null, and back.
std::string TextOf(const kernels::GroupMaker* maker);
RankDevice DeviceOf(const std::string& text);

}  // namespace tessera::worker
