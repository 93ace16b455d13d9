#include "deploy/processes/hang_policy.h"

#include <catch2/catch.hpp>
#include <limits>

namespace tessera::deploy {

TEST_CASE("a worker that stays lost hangs, once the bound is over") {
  HangPolicy policy;
  CHECK_FALSE(policy.OnStatus(true, 6, 100, 1000));
  CHECK_FALSE(policy.OnStatus(true, 15.9, 109.9, 1009.9));
  CHECK(policy.OnStatus(true, 16, 110, 1010));
}

TEST_CASE("one that came back in between does not") {
  HangPolicy policy;
  CHECK_FALSE(policy.OnStatus(true, 6, 100, 1000));
  CHECK_FALSE(policy.OnStatus(false, 0.5, 109, 1009));
  CHECK_FALSE(policy.OnStatus(true, 6, 115, 1015));
  CHECK_FALSE(policy.OnStatus(true, 15, 124, 1024));
  CHECK(policy.OnStatus(true, 16, 125, 1025));
}

TEST_CASE("a new process is not blamed for the silence of the one before it") {
  HangPolicy policy;
  CHECK_FALSE(policy.OnStatus(true, 20, 2, 1000));
  CHECK_FALSE(policy.OnStatus(true, 60, 42, 1040));
  CHECK_FALSE(policy.OnStatus(false, 0.1, 43, 1041));
}

TEST_CASE("a process that nobody ever hears of hangs in the end") {
  const double never = std::numeric_limits<double>::infinity();
  for (const double silent : {never, 500.0}) {
    HangPolicy policy;
    CHECK_FALSE(policy.OnStatus(true, silent, 1, 1000));
    CHECK_FALSE(policy.OnStatus(true, silent, HangPolicy::kMaxStartSeconds - 1, 1118));
    CHECK(policy.OnStatus(true, silent, HangPolicy::kMaxStartSeconds, 1119));
  }
}

}  // namespace tessera::deploy
