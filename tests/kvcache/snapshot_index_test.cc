#include "kvcache/snapshot_index.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace tessera::kvcache {
namespace {

// Saves a state of each node, which is also its position, one behind the other on one way.
void SaveWay(SnapshotIndex* index, const std::vector<PrefixNode>& nodes) {
  PrefixNode before = 0;
  for (const PrefixNode node : nodes) {
    const SnapshotHold hold = index->Reserve();
    REQUIRE(hold);
    index->Commit(hold, node, static_cast<int64_t>(node), before);
    before = node;
  }
}

std::vector<PrefixNode> Kept(const SnapshotIndex& index, const std::vector<PrefixNode>& nodes) {
  std::vector<PrefixNode> kept;
  for (const PrefixNode node : nodes) {
    if (index.Has(node)) kept.push_back(node);
  }
  return kept;
}

TEST_CASE("a snapshot is found at its node from when it was saved until its node goes") {
  SnapshotIndex index(2);
  SnapshotHold hold = index.Reserve();
  const int32_t place = hold.place();
  const uint64_t name = hold.name();
  CHECK_FALSE(index.Has(5));
  index.Commit(hold, 5, 64, 0);
  hold.Clear();
  CHECK(index.Has(5));
  SnapshotHold used = index.Use(5);
  CHECK(used.place() == place);
  CHECK(used.name() == name);
  CHECK_FALSE(index.Use(6));
  index.Erase(5);
  CHECK_FALSE(index.Has(5));
  // Somebody still goes on from it.
  SnapshotHold one = index.Reserve();
  CHECK(one.place() != place);
  CHECK_FALSE(index.Reserve());
  used.Clear();
  const SnapshotHold other = index.Reserve();
  CHECK(other.place() == place);
  CHECK(other.name() != name);
}

TEST_CASE("a state that was never saved gives its place back") {
  SnapshotIndex index(1);
  index.Reserve();
  CHECK(index.Reserve());
  CHECK(index.size() == 0);
}

TEST_CASE("of two states behind the same tokens the first stays") {
  SnapshotIndex index(2);
  SaveWay(&index, {7});
  const int32_t first = index.Use(7).place();
  SaveWay(&index, {7});
  CHECK(index.Use(7).place() == first);
  CHECK(index.size() == 1);
  SaveWay(&index, {8});  // the second place is free again
  CHECK(index.size() == 2);
}

TEST_CASE("the one goes whose neighbours are closest, never the first or the last of a way") {
  SnapshotIndex index(5);
  const std::vector<PrefixNode> way = {100, 400, 500, 600, 1000};
  SaveWay(&index, way);
  const auto more = [&](PrefixNode node) {  // of another way, with nothing before it
    const SnapshotHold hold = index.Reserve();
    index.Commit(hold, node, 50, 0);
    return Kept(index, way);
  };
  CHECK(more(2001) == std::vector<PrefixNode>{100, 400, 600, 1000});
  CHECK(more(2002) == std::vector<PrefixNode>{100, 600, 1000});
  CHECK(more(2003) == std::vector<PrefixNode>{100, 1000});
  // Now each is a first or a last one: the one that was not used for longest goes, and of a way
  // that was used at one time its end.
  index.Use(1000);
  CHECK(more(2004) == std::vector<PrefixNode>{100, 1000});
  CHECK_FALSE(index.Has(2001));
}

TEST_CASE("what is being saved or restored is never given up") {
  SnapshotIndex index(2);
  SaveWay(&index, {1, 2});
  const SnapshotHold one = index.Use(1);
  SaveWay(&index, {3});
  CHECK(Kept(index, {1, 2, 3}) == std::vector<PrefixNode>{1, 3});
  const SnapshotHold three = index.Use(3);
  CHECK_FALSE(index.Reserve());
}

}  // namespace
}  // namespace tessera::kvcache
