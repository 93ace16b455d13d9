#include "scheduler/input/arrival_gaps.h"

#include <cmath>
#include <cstdint>
#include <numeric>

namespace tessera::scheduler {
namespace {

constexpr double kCoarseSeconds = 1;
constexpr double kMillisecond = 1e-3;

// The largest time that all arrivals are multiples of, in whole milliseconds; 0: finer than that.
double ClockTick(const std::vector<TraceRequest>& trace) {
  int64_t tick = 0;
  for (const TraceRequest& request : trace) {
    const double milliseconds = request.arrival_seconds / kMillisecond;
    const double whole = std::round(milliseconds);
    if (std::abs(milliseconds - whole) > 1e-3 || whole > 1e15) return 0;
    tick = std::gcd(tick, static_cast<int64_t>(whole));
  }
  return static_cast<double>(tick) * kMillisecond;
}

std::vector<double> Arrivals(const std::vector<TraceRequest>& trace) {
  std::vector<double> arrivals;
  for (const TraceRequest& request : trace) arrivals.push_back(request.arrival_seconds);
  const double tick = ClockTick(trace);
  if (tick < kCoarseSeconds) return arrivals;
  std::vector<double> spread;
  size_t ticks = 0;
  for (size_t i = 0; i < arrivals.size(); ++ticks) {
    size_t end = i;
    while (end < arrivals.size() && arrivals[end] == arrivals[i]) ++end;
    const auto count = static_cast<double>(end - i);
    for (size_t k = i; k < end; ++k)
      spread.push_back(arrivals[i] + tick * (static_cast<double>(k - i) + 0.5) / count);
    i = end;
  }
  return 2 * ticks <= arrivals.size() ? spread : arrivals;
}

}  // namespace

std::optional<double> MeasuredVariation(const std::vector<TraceRequest>& trace) {
  if (trace.size() < kFewestArrivals) return std::nullopt;
  const std::vector<double> arrivals = Arrivals(trace);
  const auto gaps = static_cast<double>(arrivals.size() - 1);
  const double mean = (arrivals.back() - arrivals.front()) / gaps;
  if (!(mean > 0) || !std::isfinite(mean)) return std::nullopt;
  double squares = 0;
  for (size_t i = 1; i < arrivals.size(); ++i) {
    const double off = (arrivals[i] - arrivals[i - 1]) / mean - 1;
    squares += off * off;
  }
  return std::sqrt(squares / gaps);
}

}  // namespace tessera::scheduler
