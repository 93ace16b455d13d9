// How the stages of a replica agree to hand rows and tokens on by their devices, in memory that two
// of them map (kernels/collectives/device_sums.h, pairs): where all are on one machine, on devices
// of one kind that map memory, and the ranks of each stage meet there, too.
//
// Each member says to the leader why it cannot (empty: it can), and what its device is
// (kHopDevice); the leader answers all with the first reason. Where there is none, the first ranks
// of stages that follow each other map memory, and so do the leader and the worker that draws.
// Members say why they could not (kHopsMapped, empty: they could), and the leader answers likewise.
// With a reason rows go through the hosts.
//
// Blocks, in bounded time; one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/collectives/device_sums.h"
#include "kernels/collectives/group_maker.h"
#include "kernels/links/link.h"
#include "worker/step/stage_runner.h"

namespace tessera::worker {

// One member's links to those with whom it agrees. Borrowed.
struct HopLinks {
  std::vector<kernels::Link*> members;  // of the leader: control links to all others; else empty
  kernels::Link* leader = nullptr;      // control link; null of the leader
  kernels::Link* drawer = nullptr;      // of the leader: to the worker that draws, one of `members`
  bool draws = false;
  kernels::Link* previous = nullptr;  // bulk links of first ranks; null: there is no such stage
  kernels::Link* next = nullptr;
  bool has_ranks = false;                     // its stage has several,
  const kernels::DeviceSums* sums = nullptr;  // whose devices sum; null: they do not
};

class StageHops {
 public:
  // `maker`: of this member's device, or null.
  static absl::StatusOr<StageHops> Open(const HopLinks& links, kernels::GroupMaker* maker,
                                        double wait_seconds,
                                        const std::function<bool()>& cancelled);
  StageHops() = default;

  // Why rows go through the hosts; empty: they need not.
  const std::string& why_not() const { return why_not_; }
  // For StageLinks; null: rows go through the hosts.
  const DeviceHops* hops() const { return hops_.piece_bytes > 0 ? &hops_ : nullptr; }
  // This member's pairs, to abort where links are shut down.
  std::vector<kernels::DeviceSums*> pairs() const;

 private:
  std::string why_not_;
  std::unique_ptr<kernels::DeviceSums> previous_, next_, tokens_;
  DeviceHops hops_;
};

}  // namespace tessera::worker
