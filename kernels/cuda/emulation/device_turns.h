// Several emulated devices at once, in an order that a seed chooses: a kernel of one may wait for a
// kernel of another, as on two GPUs.
//
// Each device's work runs on a thread of its own, of which one runs at a time. The turn may pass to
// another device wherever a kernel uses memory of system scope (kernels/cuda/system_ops.h), and
// does where it waits. A device that waits goes on once another one has stored something; where all
// wait that have not ended, that is a deadlock, and the kernel that waited last fails with its
// name. Time stands still: no wait ends because it took long.
//
// Without this, devices of one process or of several run side by side, and wait for each other in
// real time.
//
// Thread rule: RunTogether blocks, and may run on several threads at once.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/schedule.h"

namespace tessera::kernels::cuda::emulated {

class DeviceTurns {
 public:
  // Runs devices[i], which launches what it likes on a stream of its own, for all i at once;
  // returns when all have returned. Seeds 0 and 1 let the first, or the last, device run until it
  // waits, 2 passes the turn at every use of such memory; from 3 on all is drawn from the seed.
  static void RunTogether(const std::vector<std::function<void()>>& devices, uint64_t seed);

  // The turns in which the calling thread runs a device; null: it runs none so.
  static DeviceTurns* Current();
  // The running device uses memory that others use, too; `stores`: it has changed it.
  void Pass(bool stores);
  // The running device waits at `place` for others' stores. Returns why it would wait for ever;
  // empty: it may look again.
  std::string Wait(const std::string& place);

 private:
  enum class State : uint8_t { kReady, kWaits, kEnded };
  struct Device {
    State state = State::kReady;
    std::string place;  // where it waits
  };

  DeviceTurns(size_t devices, uint64_t seed)
      : devices_(devices), seed_(seed), random_(seed), turn_(seed == 1 ? devices - 1 : 0) {}
  void Run(size_t device, const std::function<void()>& work);
  // Gives the turn to a device that is ready. False: none is.
  bool GiveTurnLocked();
  void AwaitTurn(size_t device, std::unique_lock<std::mutex>& lock);
  std::string DescribeLocked() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Device> devices_;
  const uint64_t seed_;
  ScheduleRandom random_;
  size_t turn_;
};

}  // namespace tessera::kernels::cuda::emulated
