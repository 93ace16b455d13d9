#include "scheduler/cost/queue.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::scheduler {

double MeanWaitSeconds(double arrivals_per_second, const ServiceMoments& service,
                       double arrival_variation) {
  const double utilisation = arrivals_per_second * service.mean;
  if (utilisation >= 1) return std::numeric_limits<double>::infinity();
  const double burstiness = (1 + arrival_variation * arrival_variation) / 2;
  return burstiness * arrivals_per_second * service.second / (2 * (1 - utilisation));
}

double WaitExceedsProbability(double seconds, double arrivals_per_second,
                              const ServiceMoments& service, double arrival_variation) {
  if (seconds < 0) return 1;
  const double utilisation = arrivals_per_second * service.mean;
  const double wait = MeanWaitSeconds(arrivals_per_second, service, arrival_variation);
  if (!std::isfinite(wait)) return 1;
  if (wait <= 0) return 0;
  return std::min(1.0, utilisation * std::exp(-utilisation * seconds / wait));
}

}  // namespace tessera::scheduler
