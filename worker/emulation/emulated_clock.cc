#include "worker/emulation/emulated_clock.h"

#include <sys/prctl.h>
#include <time.h>

#include <cerrno>
#include <cmath>

namespace tessera::worker {
namespace {

class MonotonicClock final : public EmulatedClock {
 public:
  double NowSeconds() override {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  void SleepUntil(double seconds) override {
    // Else the kernel may let a thread sleep 50 us longer.
    thread_local const int exact = prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    (void)exact;
    if (seconds <= NowSeconds()) return;
    timespec end{};
    end.tv_sec = static_cast<time_t>(std::floor(seconds));
    end.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, nullptr) == EINTR) {
    }
  }
};

}  // namespace

EmulatedClock& SystemClock() {
  static MonotonicClock clock;
  return clock;
}

}  // namespace tessera::worker
