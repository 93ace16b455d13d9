#include "coordinator/deployment/busy_window.h"

#include <algorithm>

namespace tessera::coordinator {
namespace {

constexpr double kWindowSeconds = 10;
// Points that are closer only make the window larger.
constexpr double kSpacingSeconds = 0.5;

}  // namespace

void BusyWindow::Add(const v1::WorkerCounters& counters) {
  const Point point = {counters.uptime_seconds(), counters.busy_seconds()};
  if (!points_.empty() && point.uptime_seconds < points_.back().uptime_seconds) points_.clear();
  if (points_.empty() && point.uptime_seconds <= kWindowSeconds) points_.emplace_back();
  const bool crowded =
      points_.size() >= 2 &&
      points_.back().uptime_seconds - points_[points_.size() - 2].uptime_seconds < kSpacingSeconds;
  if (crowded) points_.pop_back();
  points_.push_back(point);
  while (points_.size() > 2 && points_[1].uptime_seconds <= point.uptime_seconds - kWindowSeconds) {
    points_.pop_front();
  }
}

std::optional<double> BusyWindow::Share() const {
  if (points_.size() < 2) return std::nullopt;
  const double seconds = points_.back().uptime_seconds - points_.front().uptime_seconds;
  if (seconds <= 0) return std::nullopt;
  // A step counts when it ends, also the part of it from before the window.
  return std::clamp((points_.back().busy_seconds - points_.front().busy_seconds) / seconds, 0.0,
                    1.0);
}

}  // namespace tessera::coordinator
