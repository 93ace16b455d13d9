// When a bounded wait ends. Values, thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>

namespace tessera::kernels {

using Deadline = std::chrono::steady_clock::time_point;

// Now and `timeout_seconds`; below 0 counts as 0, and no wait is longer than a day.
inline Deadline DeadlineAfter(double timeout_seconds) {
  constexpr double kLongestSeconds = 86'400;
  const double seconds = timeout_seconds > 0 ? std::min(timeout_seconds, kLongestSeconds) : 0;
  return std::chrono::steady_clock::now() +
         std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

inline double SecondsUntil(Deadline deadline) {
  const std::chrono::duration<double> left = deadline - std::chrono::steady_clock::now();
  return std::max(0.0, left.count());
}

// For poll(2): rounded up, so that a wait does not end before its deadline.
inline int MillisecondsUntil(Deadline deadline) {
  return static_cast<int>(std::ceil(SecondsUntil(deadline) * 1e3));
}

}  // namespace tessera::kernels
