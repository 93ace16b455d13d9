#include "deploy/restart_policy.h"

#include <catch2/catch.hpp>

namespace tessera::deploy {

TEST_CASE("a worker that ends at once is started again twice, the third end is the last") {
  RestartPolicy policy;
  CHECK(policy.OnEnd(0.1).has_value());
  CHECK(policy.OnEnd(RestartPolicy::kAtOnceSeconds - 0.1).has_value());
  CHECK_FALSE(policy.OnEnd(0.1).has_value());
}

TEST_CASE("one that lasted in between is started again") {
  RestartPolicy policy;
  for (int round = 0; round < 3; ++round) {
    CHECK(policy.OnEnd(0.1).has_value());
    CHECK(policy.OnEnd(0.1).has_value());
    CHECK(policy.OnEnd(RestartPolicy::kAtOnceSeconds).has_value());
  }
}

TEST_CASE("ends soon after one another wait longer and longer, up to a bound") {
  RestartPolicy policy;
  double last = policy.OnEnd(6).value();
  CHECK(last > 0);
  for (int end = 0; end < 20; ++end) {
    const double next = policy.OnEnd(6).value();
    CHECK(next >= last);
    CHECK(next <= 2 * last);
    last = next;
  }
  CHECK(last == RestartPolicy::kMaxDelaySeconds);
  CHECK(policy.OnEnd(3600) == 0);
}

}  // namespace tessera::deploy
