#include <catch2/catch.hpp>
#include <numeric>

#include "scheduler/search/baselines/phase_flow.h"
#include "scheduler/search/layout/rate_program.h"
#include "scheduler/search/math/seeded_random.h"

namespace tessera::scheduler {
namespace {

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Prefill 4 and 2, decode 3 and 5: six can be served.
RateProgram TwoByTwo() {
  RateProgram transport;
  transport.capacity = {4, 2, 3, 5};
  transport.pairs = {{0, 2}, {0, 3}, {1, 2}, {1, 3}};
  return transport;
}

TEST_CASE("shares are limited by replicas, by links and by shared links") {
  RateProgram transport = TwoByTwo();
  CHECK(Sum(*SolveTransport(transport)) == Approx(6));
  // Replica 0 may send 0.5 to replica 3, and replica 2 takes three in all.
  transport.pairs[1].link_rate = 0.5;
  CHECK(Sum(*SolveTransport(transport)) == Approx(5.5));
  CHECK((*SolveTransport(transport))[1] <= 0.5 + 1e-9);
  // All that replica 0 sends shares an uplink; the first pair's requests take twice the bytes.
  transport.shared.push_back({{{0, 2}, {1, 1}}, 4.5});
  CHECK(Sum(*SolveTransport(transport)) == Approx(2 + 0.5 + 2));
  CHECK(SolveTransport(RateProgram())->empty());
}

TEST_CASE("what is served is the program's sum, whether or not links bind") {
  SeededRandom random(11);
  int bound = 0, free = 0;
  for (int i = 0; i < 200; ++i) {
    RateProgram transport;
    const int prefills = 1 + random.Below(4), decodes = 1 + random.Below(4);
    for (int r = 0; r < prefills + decodes; ++r) transport.capacity.push_back(random.Unit() * 10);
    const double widest = 1 + random.Unit() * 30;
    LoadedLink uplink;
    for (int p = 0; p < prefills; ++p) {
      for (int d = 0; d < decodes; ++d) {
        if (p == 0) uplink.uses.push_back({transport.pairs.size(), 1 + random.Unit()});
        transport.pairs.push_back({p, prefills + d, random.Unit() * widest});
      }
    }
    uplink.rate = random.Unit() * widest;
    transport.shared.push_back(uplink);
    const double best = Sum(*SolveTransport(transport));
    CHECK(ServedBy(transport) == Approx(best).epsilon(1e-9));
    for (RateProgram::Pair& pair : transport.pairs) pair.link_rate = kUnbounded;
    transport.shared.clear();
    ++(best < ServedBy(transport) * (1 - 1e-6) ? bound : free);
  }
  CHECK(bound >= 20);
  CHECK(free >= 20);
  CHECK(ServedBy(RateProgram()) == 0);
}

TEST_CASE("the maximum flow is the program's optimum") {
  SeededRandom random(7);
  for (int i = 0; i < 50; ++i) {
    RateProgram transport;
    const int prefills = 1 + random.Below(4), decodes = 1 + random.Below(4);
    for (int r = 0; r < prefills + decodes; ++r) transport.capacity.push_back(random.Unit() * 10);
    for (int p = 0; p < prefills; ++p) {
      for (int d = 0; d < decodes; ++d)
        transport.pairs.push_back({p, prefills + d, random.Unit() * 4});
    }
    const PhaseFlow flow = LargestPhaseFlow(transport);
    const double best = Sum(*SolveTransport(transport));
    CHECK(flow.requests_per_second == Approx(best).margin(1e-4));
    CHECK(Sum(flow.pairs) == Approx(flow.requests_per_second).margin(1e-9));
    for (size_t p = 0; p < flow.pairs.size(); ++p)
      CHECK(flow.pairs[p] <= transport.pairs[p].link_rate + 1e-9);
    for (size_t r = 0; r < transport.capacity.size(); ++r)
      CHECK(flow.through[r] <= transport.capacity[r] + 1e-9);
  }
}

}  // namespace
}  // namespace tessera::scheduler
