#include "scheduler/cost/queue.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::scheduler {
namespace {

constexpr double kAlike = 1e-4;  // means of which one formula has no difference to divide by

}  // namespace

double MeanWaitSeconds(double arrivals_per_second, const ServiceMoments& service,
                       double arrival_variation) {
  const double utilisation = arrivals_per_second * service.mean;
  if (utilisation >= 1) return std::numeric_limits<double>::infinity();
  const double burstiness = (1 + arrival_variation * arrival_variation) / 2;
  return burstiness * arrivals_per_second * service.second / (2 * (1 - utilisation));
}

Wait QueueWait(double arrivals_per_second, const ServiceMoments& service,
               double arrival_variation) {
  const double utilisation = arrivals_per_second * service.mean;
  if (utilisation >= 1) return {1, std::numeric_limits<double>::infinity()};
  if (utilisation <= 0) return {};
  return {utilisation,
          MeanWaitSeconds(arrivals_per_second, service, arrival_variation) / utilisation};
}

double WaitExceedsProbability(double seconds, const Wait& first, const Wait& second) {
  if (seconds < 0) return 1;
  const auto exceeds = [&](const Wait& wait) {
    if (wait.mean_seconds <= 0) return 0.0;
    return std::isfinite(wait.mean_seconds) ? std::exp(-seconds / wait.mean_seconds) : 1.0;
  };
  const double p = first.probability, q = second.probability;
  const double a = first.mean_seconds, b = second.mean_seconds;
  const double over_a = exceeds(first), over_b = exceeds(second);
  if (p <= 0 || q <= 0) return p > 0 ? p * over_a : q * over_b;
  double both = 1;
  if (std::isfinite(a) && std::isfinite(b)) {
    both = std::abs(a - b) > kAlike * a ? (a * over_a - b * over_b) / (a - b)
                                        : (1 + seconds / a) * over_a;
  }
  return p * (1 - q) * over_a + q * (1 - p) * over_b + p * q * both;
}

}  // namespace tessera::scheduler
