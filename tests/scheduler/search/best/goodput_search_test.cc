// What a goodput search reaches, and what it says of plans that lost.
#include "scheduler/search/best/goodput_search.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "scheduler/search/best/goodput_columns.h"
#include "tests/scheduler/search/best/mixed_cloud.h"

namespace tessera::scheduler {
namespace {

using tests::MixedCloud;
using tests::PlacementOfParts;

TEST_CASE("a goodput search serves more than parts of pools") {
  const MixedCloud cloud;
  GroupLayouts groups(cloud.problem, GroupLayoutOptions());
  GoodputColumns columns(cloud.problem, &groups);
  const Placement alone = PlacementOfParts(cloud, &groups, &columns);
  const absl::StatusOr<Placement> best = SearchGoodput(cloud.problem);
  REQUIRE(best.status().message() == "");
  CHECK(!best->interrupted);
  CHECK(best->requests_per_second > 1.2 * alone.requests_per_second);
}

int64_t Times(const v1::Note& note, const Placement& placement) {
  return std::count_if(placement.notes.begin(), placement.notes.end(), [&](const v1::Note& one) {
    return one.SerializeAsString() == note.SerializeAsString();
  });
}

TEST_CASE("a goodput search says what the other kind of plan would serve") {
  MixedCloud cloud;
  cloud.problem.classes[0].limits.ttft_seconds = 1.5;
  const absl::StatusOr<Placement> found = SearchGoodput(cloud.problem);
  REQUIRE(found.status().message() == "");
  REQUIRE(found->alternatives.size() == 1);
  const Placement& other = found->alternatives[0];
  CHECK(Splits(other) != Splits(*found));
  CHECK(other.requests_per_second <= found->requests_per_second);
  const v1::Note note = LosingSplitNote(Splits(other), other.requests_per_second, 0);
  CHECK(Times(note, *found) == 1);
  cloud.problem.allow_split = false;
  const absl::StatusOr<Placement> unsplit = SearchGoodput(cloud.problem);
  REQUIRE(unsplit.status().message() == "");
  CHECK(!Splits(*unsplit));
  CHECK(unsplit->alternatives.empty());
  CHECK(Times(LosingSplitNote(true, 0, 0), *unsplit) == 0);
}

}  // namespace
}  // namespace tessera::scheduler
