#include "deploy/processes/restart_policy.h"

#include <catch2/catch.hpp>

namespace tessera::deploy {

TEST_CASE("a program that ends at once for the third time in a row is failing, and is tried on") {
  RestartPolicy policy;
  policy.OnEnd(0.1);
  policy.OnEnd(RestartPolicy::kAtOnceSeconds - 0.1);
  CHECK_FALSE(policy.failing());
  CHECK(policy.OnEnd(0.1) > 0);
  CHECK(policy.failing());
  CHECK(policy.ends_at_once() == 3);
  for (int end = 0; end < 100; ++end) CHECK(policy.OnEnd(0.1) <= RestartPolicy::kMaxDelaySeconds);
}

TEST_CASE("one that lasted in between is not failing") {
  RestartPolicy policy;
  for (int round = 0; round < 3; ++round) {
    policy.OnEnd(0.1);
    policy.OnEnd(0.1);
    policy.OnEnd(RestartPolicy::kAtOnceSeconds);
    CHECK_FALSE(policy.failing());
    CHECK(policy.ends_at_once() == 0);
  }
}

TEST_CASE("ends soon after one another wait longer and longer, up to a bound") {
  for (const double lived : {0.1, 6.0}) {
    RestartPolicy policy;
    double last = policy.OnEnd(lived);
    CHECK(last > 0);
    for (int end = 0; end < 20; ++end) {
      const double next = policy.OnEnd(lived);
      CHECK(next >= last);
      CHECK(next <= 2 * last);
      last = next;
    }
    CHECK(last == RestartPolicy::kMaxDelaySeconds);
    CHECK(policy.OnEnd(3600) == 0);
  }
}

}  // namespace tessera::deploy
