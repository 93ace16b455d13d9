// How many sequences decode at once in a replica, as a random variable.
//
// With n sequences a replica completes R(n) requests per second, all n advancing alike: a
// processor-sharing station whose speed depends on n. Of Poisson arrivals at rate a its number in
// the system has p(n) ~ prod_{i<=n} a / R(i), whatever the lengths are distributed like (Cohen,
// "The multiple phase service network with generalized processor sharing", Acta Informatica 12,
// 1979). Arrivals that come more unevenly spread n more: with peakedness z the product is taken to
// 1/z, which is the diffusion whose variance is a + R over its drift a - R (z = 1: Poisson).
// No more than `most` run; who comes then waits until one ends, a queue with
//   P(wait > t) = P(n >= most) exp(-t a ln(R(most)/a) / z_q),
// z_q = (c_a^2 + c_s^2)/2 with the variations of arrival gaps and of what a request computes (the
// heavy-traffic limit of G/G/1). Thread rule: pure function. Units: requests per second, seconds.
#pragma once

#include <functional>
#include <vector>

#include "scheduler/cost/queue.h"

namespace tessera::scheduler {

struct LoadAsked {
  double rate = 0;
  double most = 1;              // sequences at once, >= 1
  double peakedness = 1;        // z
  double queue_peakedness = 1;  // z_q
};

struct LoadDistribution {
  bool saturated = false;         // more comes than is completed however many run
  std::vector<double> sequences;  // n in equally likely parts, ascending
  double mean_sequences = 0;
  Wait wait;  // until there is room
};

// `completions`: R, growing.
LoadDistribution LoadAt(const LoadAsked& asked, const std::function<double(double)>& completions);

}  // namespace tessera::scheduler
