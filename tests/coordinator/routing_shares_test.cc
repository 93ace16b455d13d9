#include "coordinator/flow/routing_shares.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

namespace tessera::coordinator {
namespace {

std::vector<bool> Allowed(const RoutingShares& shares, const std::vector<std::string>& ready) {
  std::vector<scheduler::ReplicaLoad> loads(ready.size());
  for (scheduler::ReplicaLoad& load : loads) load.ready = true;
  shares.Restrict(ready, loads);
  std::vector<bool> allowed;
  for (const scheduler::ReplicaLoad& load : loads) allowed.push_back(load.ready);
  return allowed;
}

// Each request goes to the first of `ready` that is allowed: as if that one were always the idlest.
std::map<std::string, int> Serve(RoutingShares& shares, const std::vector<std::string>& ready,
                                 int requests) {
  std::map<std::string, int> got;
  for (int i = 0; i < requests; ++i) {
    const std::vector<bool> allowed = Allowed(shares, ready);
    const auto first = std::find(allowed.begin(), allowed.end(), true);
    REQUIRE(first != allowed.end());
    const std::string& name = ready[first - allowed.begin()];
    ++got[name];
    shares.Note(name);
  }
  return got;
}

}  // namespace

TEST_CASE("traffic keeps the shares whatever the load says, among those that are ready") {
  RoutingShares shares({{"a", 0.1}, {"b", 0.6}, {"c", 0.1}});  // a fifth is shed
  std::map<std::string, int> got = Serve(shares, {"a", "b", "c"}, 1000);
  CHECK(std::abs(got["a"] - 125) <= 20);
  CHECK(std::abs(got["b"] - 750) <= 40);
  CHECK(std::abs(got["c"] - 125) <= 20);
  got = Serve(shares, {"a", "c"}, 200);
  CHECK(std::abs(got["a"] - 100) <= 10);
  // It comes back: not everything goes there until it has caught up.
  shares.Restart();
  CHECK(Serve(shares, {"a", "b", "c"}, 40)["b"] >= 28);
}

TEST_CASE("within the slack the load decides; a burst may go to the idlest") {
  RoutingShares shares({{"a", 0.5}, {"b", 0.5}});
  shares.Note("a");
  CHECK(Allowed(shares, {"a", "b"}) == std::vector<bool>{true, true});
  shares.Note("a");
  shares.Note("a");
  shares.Note("a");
  CHECK(Allowed(shares, {"a", "b"}) == std::vector<bool>{false, true});
  CHECK(Allowed(shares, {"a"}) == std::vector<bool>{true});
}

TEST_CASE("no share: nothing while others are ready, everything when alone") {
  RoutingShares shares({{"a", 0.5}, {"spare", 0}});
  CHECK(Serve(shares, {"spare", "a"}, 50)["a"] == 50);
  CHECK(Serve(shares, {"spare", "unplanned"}, 3)["spare"] == 3);
  CHECK(Allowed(shares, {}).empty());
  RoutingShares none;
  CHECK(Serve(none, {"x", "y"}, 20)["x"] == 20);
}

}  // namespace tessera::coordinator
