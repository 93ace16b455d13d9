#include "worker/weights/start_thread.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/no_more_threads.h"

namespace tessera::worker {
namespace {

TEST_CASE("a thread runs what it is given") {
  bool ran = false;
  auto thread = StartThread("a thread", [&] { ran = true; });
  REQUIRE(thread.ok());
  thread->join();
  CHECK(ran);
}

TEST_CASE("a thread that cannot be started: its name, the reason and the way out") {
  const tests::NoMoreThreads none;
  const auto thread = StartThread("the thread that loads", [] {});
  REQUIRE_FALSE(thread.ok());
  CHECK(thread.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(
      std::string(thread.status().message()),
      Catch::Contains("cannot start the thread that loads: Resource temporarily unavailable") &&
          Catch::Contains("limit on processes"));
}

}  // namespace
}  // namespace tessera::worker
