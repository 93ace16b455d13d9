#include "scheduler/search/transport.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "scheduler/search/phase_flow.h"
#include "scheduler/search/seeded_random.h"

namespace tessera::scheduler {
namespace {

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Prefill 4 and 2, decode 3 and 5: six can be served.
Transport TwoByTwo() {
  Transport transport;
  transport.capacity = {4, 2, 3, 5};
  transport.pairs = {{0, 2}, {0, 3}, {1, 2}, {1, 3}};
  return transport;
}

TEST_CASE("shares are limited by replicas, by links, by shared links and by what is offered") {
  Transport transport = TwoByTwo();
  CHECK(Sum(*SolveTransport(transport)) == Approx(6));
  // Replica 0 may send 0.5 to replica 3, and replica 2 takes three in all.
  transport.pairs[1].link_rate = 0.5;
  CHECK(Sum(*SolveTransport(transport)) == Approx(5.5));
  CHECK((*SolveTransport(transport))[1] <= 0.5 + 1e-9);
  // All that replica 0 sends shares an uplink; the first pair's requests take twice the bytes.
  transport.shared.push_back({{{0, 2}, {1, 1}}, 4.5});
  CHECK(Sum(*SolveTransport(transport)) == Approx(2 + 0.5 + 2));
  transport.offered = 1;
  CHECK(Sum(*SolveTransport(transport)) == Approx(1));
  CHECK(SolveTransport(Transport())->empty());
}

TEST_CASE("the maximum flow is the program's optimum") {
  SeededRandom random(7);
  for (int i = 0; i < 50; ++i) {
    Transport transport;
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

TEST_CASE("requests go where objectives are met, and shares settle where that depends on load") {
  Transport transport = TwoByTwo();
  transport.offered = 3;
  // Replica 3 meets nine of ten, replica 2 half of them: all fit on replica 3.
  const auto fixed = [](const Transport::Pair& pair, double, double) {
    return pair.decode == 3 ? 0.9 : 0.5;
  };
  const auto best = SolveForAttainment(transport, fixed);
  REQUIRE(best.ok());
  CHECK(best->attained == Approx(2.7));
  CHECK(best->rounds <= 3);
  // The busier a decoding replica, the fewer: spread or not, the answer is judged at its own load.
  const auto by_load = [](const Transport::Pair& pair, double, double decode_rate) {
    return 1 - decode_rate / (pair.decode == 3 ? 10 : 6);
  };
  const auto settled = SolveForAttainment(transport, by_load);
  REQUIRE(settled.ok());
  CHECK(settled->rounds <= 10);
  double attained = 0, loads[4] = {0, 0, 0, 0};
  for (size_t p = 0; p < 4; ++p) loads[transport.pairs[p].decode] += settled->rates[p];
  for (size_t p = 0; p < 4; ++p)
    attained +=
        settled->rates[p] * by_load(transport.pairs[p], 0, loads[transport.pairs[p].decode]);
  CHECK(settled->attained == Approx(attained));
  CHECK(attained >= 3 * 0.5);
}

}  // namespace
}  // namespace tessera::scheduler
