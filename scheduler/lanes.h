// Lanes: the micro-batches that a replica of several stages has in flight, so that its stages work
// at the same time. The engine of a leader and the simulator start steps by the same function.
//
// Rule: lanes share queue and KV blocks; every running sequence belongs to one. A lane whose step
// has come back plans its next one (scheduler/batcher.h, with LimitsOfMicroBatch as its limits) as
// soon as anything changes that could let it go on. A lane stalls where every block that it lacks
// is held by the others; where all lanes that hold sequences stall, none can wait for another, and
// the first lane takes all sequences: then the batcher's own rule (the last-ranked gives way) ends
// the jam.
//
// Thread rule: pure function of what it is given.
#pragma once

#include <cstdint>

namespace tessera::scheduler {

// `Lanes` has:
//   int count() const            at least 1
//   bool Busy(int lane) const    its step is in flight
//   bool Holds(int lane) const   sequences belong to it
//   bool Start(int lane)         plans and starts a step of an idle lane; false: nothing to run
//   void MergeIntoFirst()        moves all sequences to lane 0; called when all lanes are idle
template <typename Lanes>
void StartLanes(Lanes& lanes) {
  bool any_busy = false, any_left = false;
  for (int lane = 0; lane < lanes.count(); ++lane) {
    any_busy |= lanes.Busy(lane) || lanes.Start(lane);
    any_left |= lanes.Holds(lane);
  }
  if (any_busy || !any_left || lanes.count() == 1) return;
  lanes.MergeIntoFirst();
  lanes.Start(0);
}

// Sequences that come with their KV have no prompt that would even lanes out, so these are dealt
// evenly: how many of them a lane takes at most. `running`: of all lanes, those that wait to join
// included; `mine`: of this one.
constexpr int64_t JoinQuota(int64_t running, int64_t mine, int64_t lanes) {
  return (running + lanes - 1) / lanes - mine;
}

}  // namespace tessera::scheduler
