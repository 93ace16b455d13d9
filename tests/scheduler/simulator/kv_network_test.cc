#include "scheduler/simulator/kv_network.h"

#include <catch2/catch.hpp>

namespace tessera::scheduler {
namespace {

std::vector<SharedLink> Links(std::vector<double> rates) {
  std::vector<SharedLink> links;
  for (const double rate : rates) links.push_back({"", rate});
  return links;
}

}  // namespace

TEST_CASE("flows share links by max-min fairness") {
  KvNetwork network(Links({10, 4, 20}));
  const int64_t a = network.Start({0, 2}, 100, 0, 0);  // with b on link 0, with c on link 2
  const int64_t b = network.Start({0, 1}, 100, 0, 0);  // link 1 holds it to 4 with d: 2
  const int64_t c = network.Start({2}, 100, 0, 0);
  const int64_t d = network.Start({1}, 100, 0, 0);
  CHECK(network.RateOf(b) == Approx(2));
  CHECK(network.RateOf(d) == Approx(2));
  CHECK(network.RateOf(a) == Approx(8));
  CHECK(network.RateOf(c) == Approx(12));
  network.Drop(d, 1);
  CHECK(network.RateOf(b) == Approx(4));
  CHECK(network.RateOf(a) == Approx(6));
}

TEST_CASE("a flow alone takes bytes over rate, two take turns with what is left") {
  KvNetwork network(Links({10}));
  network.Start({0}, 100, 7, 0);
  CHECK(network.next_finish_seconds() == Approx(10));
  network.Start({0}, 20, 8, 6);  // 40 left of the first; both at 5
  CHECK(network.next_finish_seconds() == Approx(10));
  CHECK(network.Finished(10) == std::vector<int64_t>{8});
  CHECK(network.next_finish_seconds() == Approx(12));
  CHECK(network.Finished(12) == std::vector<int64_t>{7});
  CHECK(network.carried_bytes()[0] == Approx(120));
}

TEST_CASE("more to send, and flows without links") {
  KvNetwork network(Links({10}));
  const int64_t flow = network.Start({0}, 100, 1, 0);
  network.Extend(flow, 50, 4);
  CHECK(network.next_finish_seconds() == Approx(15));
  network.Start({}, 1e12, 2, 4);
  CHECK(network.next_finish_seconds() == Approx(4));
  CHECK(network.Finished(4) == std::vector<int64_t>{2});
}

TEST_CASE("incast: senders beyond the threshold slow every byte") {
  std::vector<SharedLink> links = Links({10});
  links[0].incast_threshold = 2;
  links[0].incast_seconds_per_byte = 0.05;
  KvNetwork network(links);
  const int64_t first = network.Start({0}, 100, 0, 0);
  network.Start({0}, 100, 0, 0);
  CHECK(network.RateOf(first) == Approx(5));
  network.Start({0}, 100, 0, 0);
  network.Start({0}, 100, 0, 0);
  CHECK(network.RateOf(first) == Approx(1 / (0.1 + 2 * 0.05) / 4));
}

TEST_CASE("flows have what activations leave, a hop what one more flow would have") {
  KvNetwork network(Links({10, 4}));
  const int64_t flow = network.Start({0}, 100, 0, 0);
  network.SetBackground({{3, 1}, {0, 0}}, 2);
  CHECK(network.RateOf(flow) == Approx(7));
  CHECK(network.next_finish_seconds() == Approx(2 + 80 / 7.0));
  // Its own part of the background does not stand in its way; the slowest of its links counts.
  CHECK(network.RateOfHop({0}, 3) == Approx(5));
  CHECK(network.RateOfHop({0}, 1) == Approx(4));
  CHECK(network.RateOfHop({0, 1}, 1) == Approx(4));
  CHECK(network.RateOfHop({1}, 0) == Approx(4));
  // More than there is: a twentieth stays.
  network.SetBackground({{30, 3}, {0, 0}}, 3);
  CHECK(network.RateOf(flow) == Approx(0.5));
  const int64_t version = network.version();
  network.Drop(flow, 4);
  CHECK(network.version() > version);
  CHECK(network.carried_bytes()[0] == Approx(20 + 7 + 0.5));
}

}  // namespace tessera::scheduler
