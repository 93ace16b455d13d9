// Sleeping on an atomic word (futex(2)) with a bound, which std::atomic::wait does not offer.
//
// Every wait returns after at most kLongestSleep even if nobody wakes it, so callers loop over
// their own condition and a lost wake-up costs time, never the program. Ordering comes from the
// atomics alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tessera::kernels {

inline constexpr std::chrono::milliseconds kLongestSleep{100};

// Sleeps while word == expected, until woken or kLongestSleep has passed.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected);
// Wakes up to `count` sleepers.
void FutexWake(const std::atomic<uint32_t>& word, int count);

// Spins, for at most `limit`, until done() is true; returns its last answer.
template <typename Done>
bool SpinUntil(const Done& done, std::chrono::nanoseconds limit) {
  if (done()) return true;
  if (limit.count() == 0) return false;
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < 16; ++i) {
      __builtin_ia32_pause();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace tessera::kernels
