#include "scheduler/cost/load_states.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace tessera::scheduler {
namespace {

// Erlang's C: the share of those who wait of M/M/c.
double ErlangC(double offered, int servers) {
  double term = 1, sum = 1;
  for (int n = 1; n < servers; ++n) sum += term *= offered / n;
  const double last = term * offered / servers / (1 - offered / servers);
  return last / (sum + last);
}

TEST_CASE(
    "like servers without limit hold a Poisson number, with few of them who waits is Erlang's") {
  const auto alike = [](double n) { return n; };  // each completes one per second
  const LoadDistribution free = LoadAt({20, 100, 1, 1}, alike);
  CHECK_FALSE(free.saturated);
  CHECK(free.mean_sequences == Approx(20).epsilon(0.01));
  CHECK(free.sequences.front() == Approx(20 - 1.53 * std::sqrt(20)).margin(1));  // 1/16 and 15/16
  CHECK(free.sequences.back() == Approx(20 + 1.53 * std::sqrt(20)).margin(1.5));
  CHECK(free.wait.probability < 1e-6);

  const LoadDistribution few = LoadAt({20, 25, 1, 1}, alike);
  CHECK(few.wait.probability == Approx(ErlangC(20, 25)).epsilon(0.2));
  CHECK(few.wait.mean_seconds == Approx(1 / (25.0 - 20)).epsilon(0.2));
}

TEST_CASE("bursts spread the number and lengthen the wait; beyond saturation there is no end") {
  const auto alike = [](double n) { return n; };
  const LoadDistribution even = LoadAt({20, 25, 1, 1}, alike);
  const LoadDistribution bursts = LoadAt({20, 25, 2, 2}, alike);
  CHECK(bursts.sequences.front() < even.sequences.front());
  CHECK(bursts.wait.probability > even.wait.probability);
  CHECK(bursts.wait.mean_seconds == Approx(2 * even.wait.mean_seconds));
  CHECK(LoadAt({25, 25, 1, 1}, alike).saturated);
  CHECK(LoadAt({0, 25, 1, 1}, alike).mean_sequences == 0);
  CHECK(LoadAt({0.4, 1, 1, 1}, alike).wait.probability > 0);
}

TEST_CASE("two waits, one after the other") {
  CHECK(WaitExceedsProbability(2, {0.5, 1}, {}) == Approx(0.5 * std::exp(-2)));
  CHECK(WaitExceedsProbability(2, {}, {0.5, 1}) == Approx(0.5 * std::exp(-2)));
  // Both are met by all: a sum of exponentials, alike and not.
  CHECK(WaitExceedsProbability(2, {1, 1}, {1, 1}) == Approx(3 * std::exp(-2)));
  CHECK(WaitExceedsProbability(2, {1, 1}, {1, 1.001}) == Approx(3 * std::exp(-2)).epsilon(1e-2));
  CHECK(WaitExceedsProbability(2, {1, 1}, {1, 2}) == Approx(2 * std::exp(-1) - std::exp(-2)));
  CHECK(WaitExceedsProbability(2, {0.5, 1}, {1, std::numeric_limits<double>::infinity()}) ==
        Approx(1));
  CHECK(WaitExceedsProbability(-1, {}, {}) == 1);
}

}  // namespace
}  // namespace tessera::scheduler
