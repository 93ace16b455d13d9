#include "scheduler/simulator/kv_network.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "scheduler/search/math/seeded_random.h"

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

TEST_CASE("whatever comes and goes, no flow can be raised but at the cost of a slower one") {
  constexpr int kLinks = 12;
  SeededRandom random(3);
  std::vector<double> rates;
  for (int l = 0; l < kLinks; ++l) rates.push_back(1 + random.Below(20));
  KvNetwork network(Links(rates));
  std::map<int64_t, std::vector<int>> flows;  // under way
  std::vector<int64_t> number_of(1, 0);       // by `done`
  double now = 0;
  for (int step = 0; step < 400; ++step) {
    now += random.Below(3) == 0 ? random.Unit() : 0;  // some happen at once
    while (network.next_finish_seconds() <= now) {
      for (const int64_t done : network.Finished(now))
        flows.erase(number_of[static_cast<size_t>(done)]);
    }
    if (flows.empty() || random.Below(3) > 0) {
      std::vector<int> links;
      for (int l = random.Below(4); l < kLinks; l += 1 + random.Below(6)) links.push_back(l);
      const auto done = static_cast<int64_t>(number_of.size());
      number_of.push_back(network.Start(links, 1 + random.Below(40), done, now));
      flows[number_of.back()] = links;
    } else if (const int64_t one = flows.begin()->first; random.Below(2) == 0) {
      network.Extend(one, 3, now);
    } else {
      network.Drop(one, now);
      flows.erase(one);
    }
    std::vector<double> used(kLinks, 0), fastest(kLinks, 0);
    for (const auto& [flow, links] : flows) {
      for (const int l : links) {
        used[static_cast<size_t>(l)] += network.RateOf(flow);
        fastest[static_cast<size_t>(l)] =
            std::max(fastest[static_cast<size_t>(l)], network.RateOf(flow));
      }
    }
    for (const auto& [flow, links] : flows) {
      bool held = false;  // by a full link, on which no flow is faster
      for (const int l : links) {
        const auto link = static_cast<size_t>(l);
        CHECK(used[link] <= rates[link] * (1 + 1e-9));
        held |= used[link] >= rates[link] * (1 - 1e-9) &&
                network.RateOf(flow) >= fastest[link] * (1 - 1e-9);
      }
      CHECK(held);
    }
  }
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
  network.SetBackground(0, {3, 1}, 2);
  CHECK(network.RateOf(flow) == Approx(7));
  CHECK(network.next_finish_seconds() == Approx(2 + 80 / 7.0));
  // Its own part of the background does not stand in its way; the slowest of its links counts.
  CHECK(network.RateOfHop({0}, 3) == Approx(5));
  CHECK(network.RateOfHop({0}, 1) == Approx(4));
  CHECK(network.RateOfHop({0, 1}, 1) == Approx(4));
  CHECK(network.RateOfHop({1}, 0) == Approx(4));
  // More than there is: a twentieth stays.
  network.SetBackground(0, {30, 3}, 3);
  CHECK(network.RateOf(flow) == Approx(0.5));
  const int64_t version = network.version();
  network.Drop(flow, 4);
  CHECK(network.version() > version);
  CHECK(network.carried_bytes()[0] == Approx(20 + 7 + 0.5));
}

}  // namespace tessera::scheduler
