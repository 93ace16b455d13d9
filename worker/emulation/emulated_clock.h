// The time of emulated devices: the machine's, or one that tests move.
//
// Thread rule: any thread. Units: seconds of a monotonic clock that all processes of the machine
// share.
#pragma once

namespace tessera::worker {

class EmulatedClock {
 public:
  virtual ~EmulatedClock() = default;
  virtual double NowSeconds() = 0;
  // Returns at that time or a little later; at once where it has passed.
  virtual void SleepUntil(double seconds) = 0;
};

// CLOCK_MONOTONIC. Its sleeps end some tens of microseconds late, and later where cores are busy.
EmulatedClock& SystemClock();

}  // namespace tessera::worker
