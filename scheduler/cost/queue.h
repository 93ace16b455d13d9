// Waiting in front of one server: M/G/1 with Kingman's correction for uneven arrivals.
//
// E[W] = (1 + c_a^2)/2 * lambda*E[S^2] / (2*(1 - rho)), rho = lambda*E[S], c_a the variation of the
// arrival gaps; P(W > t) ~ rho * exp(-rho*t/E[W]). M/D/1 is the special case c_a = 1, E[S^2] =
// E[S]^2. The sum of two such waits is hypoexponential where
// both are met. Thread rule: pure functions. Units: seconds, 1/seconds.
#pragma once

namespace tessera::scheduler {

struct ServiceMoments {
  double mean = 0;    // E[S], seconds
  double second = 0;  // E[S^2]
};

// None with 1 - probability, else exponential with this mean.
struct Wait {
  double probability = 0;
  double mean_seconds = 0;  // of those who wait; infinite: there is no end

  double mean() const { return probability > 0 ? probability * mean_seconds : 0; }
};

// M/G/1's as above.
Wait QueueWait(double arrivals_per_second, const ServiceMoments& service,
               double arrival_variation = 1);

// Share of those with both waits, one after the other and independent, that wait longer in all.
double WaitExceedsProbability(double seconds, const Wait& first, const Wait& second);

// Infinite at or beyond saturation.
double MeanWaitSeconds(double arrivals_per_second, const ServiceMoments& service,
                       double arrival_variation = 1);

}  // namespace tessera::scheduler
