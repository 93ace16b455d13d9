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

// Who sleeps on a word: threads of this process only, or of every process that maps its memory.
enum class FutexScope : uint8_t { kProcess, kShared };

// Sleeps while word == expected, until woken or kLongestSleep has passed.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected,
               FutexScope scope = FutexScope::kProcess);
// Wakes up to `count` sleepers, who named the same scope.
void FutexWake(const std::atomic<uint32_t>& word, int count,
               FutexScope scope = FutexScope::kProcess);

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

// Spins where other programs may need the core: only while that finds what it waits for. After a
// futile spin the next wait does not spin, after two in a row the next three, up to 63.
class ThriftySpin {
 public:
  template <typename Done>
  bool Until(const Done& done, std::chrono::nanoseconds limit) {
    if (without_ > 0) {
      --without_;
      return done();
    }
    if (SpinUntil(done, limit)) {
      in_vain_ = 0;
      return true;
    }
    in_vain_ = in_vain_ < 6 ? in_vain_ + 1 : 6;
    without_ = (1 << in_vain_) - 1;
    return false;
  }

 private:
  int in_vain_ = 0;
  int without_ = 0;  // waits to come
};

}  // namespace tessera::kernels
