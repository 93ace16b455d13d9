// Waiting in front of one server: M/G/1 with Kingman's correction for uneven arrivals.
//
// E[W] = (1 + c_a^2)/2 * lambda*E[S^2] / (2*(1 - rho)), rho = lambda*E[S], c_a the variation of the
// arrival gaps; P(W > t) ~ rho * exp(-rho*t/E[W]). M/D/1 is the special case c_a = 1, E[S^2] =
// E[S]^2. Thread rule: pure functions. Units: seconds, 1/seconds.
#pragma once

namespace tessera::scheduler {

struct ServiceMoments {
  double mean = 0;    // E[S], seconds
  double second = 0;  // E[S^2]
};

// Infinite at or beyond saturation.
double MeanWaitSeconds(double arrivals_per_second, const ServiceMoments& service,
                       double arrival_variation = 1);

// Share of arrivals that wait longer than `seconds`; 1 at or beyond saturation, and for negative
// seconds.
double WaitExceedsProbability(double seconds, double arrivals_per_second,
                              const ServiceMoments& service, double arrival_variation = 1);

}  // namespace tessera::scheduler
