#include "third_party/spdlog/log_throttle.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

TEST_CASE("one line an interval passes, and says how many did not") {
  using std::chrono::milliseconds;
  LogThrottle throttle(milliseconds(1000));
  const LogThrottle::Clock::time_point begin{};
  CHECK(throttle.Pass(begin) == 0);
  CHECK_FALSE(throttle.Pass(begin + milliseconds(1)).has_value());
  CHECK_FALSE(throttle.Pass(begin + milliseconds(999)).has_value());
  CHECK(throttle.Pass(begin + milliseconds(1000)) == 2);
  CHECK(throttle.Pass(begin + milliseconds(3000)) == 0);
}

}  // namespace
}  // namespace tessera
