#include "scheduler/cost/collectives.h"

#include <catch2/catch.hpp>

namespace tessera::scheduler {
namespace {

// 10 GB/s, 10 us: one MB takes 100 us.
LinkSpec Link() {
  LinkSpec link;
  link.bytes_per_second = 10e9;
  link.latency_seconds = 10e-6;
  return link;
}

double By(AllReduceKind kind, int ranks, double bytes, const ReduceCost& cost = {}) {
  return AllReduceSecondsBy(kind, ranks, bytes, Link(), cost);
}

TEST_CASE("each algorithm costs what its row of the table says") {
  // 4 ranks, 1 MB, no reduction cost: A*10us + V/10GB/s.
  CHECK(By(AllReduceKind::kOneShot, 4, 1e6) == Approx(10e-6 + 300e-6));
  CHECK(By(AllReduceKind::kRing, 4, 1e6) == Approx(60e-6 + 150e-6));
  CHECK(By(AllReduceKind::kHalvingDoubling, 4, 1e6) == Approx(40e-6 + 150e-6));
  CHECK(By(AllReduceKind::kTwoPhase, 4, 1e6) == Approx(20e-6 + 150e-6));
  CHECK(By(AllReduceKind::kHierarchical, 4, 1e6) == Approx(40e-6 + 150e-6));
  CHECK(By(AllReduceKind::kRing, 1, 1e6) == 0);
}

TEST_CASE("reducing and touching bytes is charged per row of the table") {
  const ReduceCost cost = {1e-12, 1e-11};  // 1 us and 10 us per MB
  CHECK(By(AllReduceKind::kOneShot, 4, 1e6, cost) == Approx(310e-6 + 3e-6 + 50e-6));
  CHECK(By(AllReduceKind::kRing, 4, 1e6, cost) == Approx(210e-6 + 0.75e-6 + 22.5e-6));
  CHECK(By(AllReduceKind::kTwoPhase, 4, 1e6, cost) == Approx(170e-6 + 0.75e-6 + 12.5e-6));
  // m1 = m2 = 2: ((3/2) + (3/4)) MB touched.
  CHECK(By(AllReduceKind::kHierarchical, 4, 1e6, cost) == Approx(190e-6 + 0.75e-6 + 22.5e-6));
}

TEST_CASE("on a grid, rings go round both of its sides instead of all ranks") {
  const ReduceCost cost = {1e-12, 1e-11};
  // 2 x 3: 2*1 + 2*2 rounds of 10 us; as many bytes as by one ring.
  CHECK(By(AllReduceKind::kGridRing, 6, 6e6, cost) == Approx(60e-6 + 1000e-6 + 5e-6 + 150e-6));
  CHECK(By(AllReduceKind::kRing, 6, 6e6, cost) == Approx(100e-6 + 1000e-6 + 5e-6 + 150e-6));
  CHECK(By(AllReduceKind::kGridRing, 12, 12e6) == Approx(100e-6 + 2200e-6));  // 3 x 4, not 2 x 6
  CHECK(By(AllReduceKind::kGridRing, 9, 9e6) == Approx(80e-6 + 1600e-6));
  CHECK(By(AllReduceKind::kGridRing, 7, 1e6) > 1e300);
}

TEST_CASE("each byte takes longer for every sender beyond the threshold") {
  LinkSpec link = Link();
  link.incast_threshold = 2;
  link.incast_seconds_per_byte = 1e-11;  // 10 us per MB and sender
  const auto excess = [&](AllReduceKind kind, int ranks, double bytes) {
    return AllReduceSecondsBy(kind, ranks, bytes, link, {}) - By(kind, ranks, bytes);
  };
  // (w - w_t) * V * epsilon: w is all ranks where everybody sends to everybody.
  CHECK(excess(AllReduceKind::kOneShot, 4, 1e6) == Approx(2 * 3e6 * 1e-11));
  CHECK(excess(AllReduceKind::kTwoPhase, 4, 1e6) == Approx(2 * 1.5e6 * 1e-11));
  CHECK(excess(AllReduceKind::kTwoPhase, 6, 6e6) == Approx(4 * 10e6 * 1e-11));
  // 6 = 2 * 3: w is 3.
  CHECK(excess(AllReduceKind::kHierarchical, 6, 6e6) == Approx(1 * 10e6 * 1e-11));
  // Two at a time are not beyond it, nor are two ranks.
  for (const AllReduceKind kind :
       {AllReduceKind::kRing, AllReduceKind::kHalvingDoubling, AllReduceKind::kGridRing})
    CHECK(excess(kind, 4, 1e6) == 0);
  CHECK(excess(AllReduceKind::kOneShot, 2, 1e6) == 0);
  link.incast_threshold = 5;  // nobody is given back what stays below it
  CHECK(excess(AllReduceKind::kOneShot, 4, 1e6) == 0);
  CHECK(excess(AllReduceKind::kOneShot, 6, 1e6) == Approx(1 * 5e6 * 1e-11));
}

TEST_CASE("halving-doubling needs a power of two, hierarchy a factor") {
  CHECK(By(AllReduceKind::kHalvingDoubling, 6, 1e6) > 1e300);
  CHECK(By(AllReduceKind::kHierarchical, 5, 1e6) > 1e300);
  CHECK(By(AllReduceKind::kHierarchical, 6, 1e6) < 1);
}

TEST_CASE("small messages go one-shot, large ones in two phases, incast leads to a ring") {
  const Communicator four = {{4, Link(), false}};
  CHECK(AllReduce(four, 16e3, {}).kind == AllReduceKind::kOneShot);
  CHECK(AllReduce(four, 1e6, {}).kind == AllReduceKind::kTwoPhase);
  LinkSpec narrow = Link();
  narrow.incast_threshold = 2;
  narrow.incast_seconds_per_byte = 1e-9;
  CHECK(AllReduce({{5, narrow, false}}, 100e6, {}).kind == AllReduceKind::kRing);
  CHECK(AllReduce({{6, narrow, false}}, 100e6, {}).kind == AllReduceKind::kGridRing);
  CHECK(AllReduce({{8, narrow, false}}, 100e6, {}).kind == AllReduceKind::kHalvingDoubling);
  CHECK(AllReduce({{1, Link(), false}}, 1e6, {}).seconds == 0);
}

TEST_CASE("over machines the shards are reduced outside, and an uplink is shared") {
  LinkSpec fast = Link();
  fast.bytes_per_second = 100e9;
  fast.latency_seconds = 1e-6;
  const Communicator own_nics = {{4, fast, false}, {2, Link(), false}};
  // Inside: two phases of 8 MB, 2 us + 12 MB / 100 GB/s; outside 2 MB one-shot, 10 us + 200 us.
  const CollectiveCost cost = AllReduce(own_nics, 8e6, {});
  CHECK(cost.kind == AllReduceKind::kTiered);
  CHECK(cost.seconds == Approx(2e-6 + 120e-6 + 210e-6));
  const Communicator one_nic = {{4, fast, false}, {2, Link(), true}};
  CHECK(AllReduce(one_nic, 8e6, {}).seconds == Approx(2e-6 + 120e-6 + 10e-6 + 800e-6));
}

TEST_CASE("broadcast takes the cheapest of direct, tree and scatter") {
  const Communicator four = {{4, Link(), false}};
  CHECK(BroadcastSeconds(four, 1e3) == Approx(10e-6 + 0.3e-6));
  CHECK(BroadcastSeconds(four, 1e6) == Approx(20e-6 + 150e-6));
  CHECK(BroadcastSeconds({{1, Link(), false}}, 1e6) == 0);
}

}  // namespace
}  // namespace tessera::scheduler
