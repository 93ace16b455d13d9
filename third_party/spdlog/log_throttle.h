// Lets one line in a while through, so that what strangers do does not fill a disk. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace tessera {

class LogThrottle {
 public:
  using Clock = std::chrono::steady_clock;
  explicit LogThrottle(Clock::duration interval) : interval_(interval) {}

  // Call once per line. A number: write it; so many lines before it were left out. Nullopt: leave
  // this one out.
  std::optional<int64_t> Pass(Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (last_.has_value() && now - *last_ < interval_) {
      ++left_out_;
      return std::nullopt;
    }
    last_ = now;
    return std::exchange(left_out_, 0);
  }

 private:
  const Clock::duration interval_;
  std::mutex mutex_;
  std::optional<Clock::time_point> last_;
  int64_t left_out_ = 0;
};

}  // namespace tessera
