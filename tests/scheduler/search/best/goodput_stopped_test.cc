// Goodput searches that are stopped.
#include <catch2/catch.hpp>

#include "scheduler/search/best/goodput_search.h"
#include "tests/scheduler/search/best/mixed_cloud.h"

namespace tessera::scheduler {
namespace {

using tests::MixedCloud;

TEST_CASE("a goodput search that is stopped answers with the best so far, whenever that is") {
  MixedCloud cloud;
  for (const int64_t asked : {0, 1, 20, 400, 3000}) {
    INFO("stopped when it asks after " << asked << " times");
    int64_t left = asked;
    cloud.problem.watch.stop = [&left] { return left-- <= 0; };
    const absl::StatusOr<Placement> found = SearchGoodput(cloud.problem);
    REQUIRE(found.status().message() == "");
    CHECK(found->interrupted);
    CHECK(found->requests_per_second > 0);
  }
}

}  // namespace
}  // namespace tessera::scheduler
