#include "kvcache/block_pool.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <vector>

namespace tessera::kvcache {
namespace {

TEST_CASE("a pool gives each block once and says when it is exhausted") {
  BlockPool pool(3, 16);
  std::set<int32_t> blocks;
  for (int i = 0; i < 3; ++i) blocks.insert(pool.Allocate());
  CHECK(blocks == std::set<int32_t>{0, 1, 2});
  CHECK(pool.Allocate() == -1);
  CHECK(pool.free_blocks() == 0);
  pool.Release(1);
  CHECK(pool.free_blocks() == 1);
  CHECK(pool.Allocate() == 1);
}

TEST_CASE("a block is free only after its last reference") {
  BlockPool pool(1, 16);
  const int32_t block = pool.Allocate();
  pool.AddReference(block);
  pool.Release(block);
  CHECK(pool.free_blocks() == 0);
  pool.Release(block);
  CHECK(pool.free_blocks() == 1);
}

TEST_CASE("cached blocks are reused last, oldest release first, and their end is told") {
  BlockPool pool(3, 16);
  std::vector<int32_t> evicted;
  pool.set_on_evict([&](int32_t block) { evicted.push_back(block); });
  const int32_t a = pool.Allocate(), b = pool.Allocate(), c = pool.Allocate();
  pool.MarkCached(a);
  pool.MarkCached(b);
  pool.Release(b);
  pool.Release(a);
  pool.Release(c);
  CHECK(pool.free_blocks() == 3);
  CHECK(pool.Allocate() == c);
  CHECK(evicted.empty());
  pool.AddReference(b);  // found again: it moves out of the list
  CHECK(pool.free_blocks() == 1);
  pool.Release(b);
  CHECK(pool.Allocate() == a);
  CHECK(pool.Allocate() == b);
  CHECK(evicted == std::vector<int32_t>{a, b});
  pool.Release(a);
  CHECK(pool.Allocate() == a);  // evicted means empty: not told twice
  CHECK(evicted.size() == 2);
}

TEST_CASE("released as the first to be evicted, a cached block goes before older ones") {
  BlockPool pool(3, 16);
  const int32_t a = pool.Allocate(), b = pool.Allocate(), c = pool.Allocate();
  for (const int32_t block : {a, b, c}) pool.MarkCached(block);
  pool.Release(a);
  pool.Release(b, BlockPool::Evicted::kFirst);
  pool.Release(c);
  CHECK(pool.Allocate() == b);
  CHECK(pool.Allocate() == a);
  CHECK(pool.Allocate() == c);
}

TEST_CASE("a forgotten block is empty, at once or with its last release") {
  BlockPool pool(2, 16);
  int evicted = 0;
  pool.set_on_evict([&](int32_t) { ++evicted; });
  const int32_t a = pool.Allocate(), b = pool.Allocate();
  pool.MarkCached(a);
  pool.MarkCached(b);
  pool.Release(a);
  pool.Forget(a);
  pool.Forget(b);
  CHECK(pool.free_blocks() == 1);
  pool.Release(b);
  CHECK(pool.free_blocks() == 2);
  pool.Allocate();
  pool.Allocate();
  CHECK(evicted == 0);
}

TEST_CASE("a table gives back whole blocks before a token, and the others with itself") {
  BlockPool pool(6, 4);
  BlockTable table(&pool);
  REQUIRE(table.Grow(14));
  const std::vector<int32_t> blocks = table.blocks();
  table.FreeBefore(7);  // the second block's last token is seen
  CHECK(table.freed() == 1);
  CHECK(pool.free_blocks() == 3);
  table.FreeBefore(8);
  CHECK(table.blocks() ==
        std::vector{BlockTable::kNoBlock, BlockTable::kNoBlock, blocks[2], blocks[3]});
  CHECK(table.Slot(9) == blocks[2] * 4 + 1);
  CHECK(table.ExclusiveBlocks() == 2);
  REQUIRE(table.Grow(20));
  CHECK(table.blocks().size() == 5);
  BlockTable moved = std::move(table);
  CHECK(moved.freed() == 2);
  moved.FreeBefore(1000);  // not more than there are
  CHECK(pool.free_blocks() == 6);
  moved.Clear();
  moved.Skip(3);
  REQUIRE(moved.Grow(16));
  CHECK(pool.free_blocks() == 5);
  CHECK(moved.blocks()[2] == BlockTable::kNoBlock);
}

TEST_CASE("a table shrinks to the blocks of its first tokens, but not below what it freed") {
  BlockPool pool(6, 4);
  BlockTable table(&pool);
  REQUIRE(table.Grow(17));
  const std::vector<int32_t> blocks = table.blocks();
  table.ShrinkTo(17);
  CHECK(table.blocks() == blocks);
  table.ShrinkTo(16);
  CHECK(table.blocks() == std::vector(blocks.begin(), blocks.begin() + 4));
  CHECK(pool.free_blocks() == 2);
  table.ShrinkTo(9);
  CHECK(table.blocks().size() == 3);
  CHECK(pool.free_blocks() == 3);
  REQUIRE(table.Grow(13));
  CHECK(table.blocks().size() == 4);
  table.FreeBefore(8);
  table.ShrinkTo(1);
  CHECK(table.blocks() == std::vector{BlockTable::kNoBlock, BlockTable::kNoBlock});
  CHECK(pool.free_blocks() == 6);
}

TEST_CASE("a table grows all or nothing and gives everything back") {
  BlockPool pool(4, 4);
  {
    BlockTable table(&pool);
    REQUIRE(table.Grow(5));
    CHECK(table.blocks().size() == 2);
    CHECK(table.Grow(8));
    CHECK(table.blocks().size() == 2);
    CHECK(table.Slot(6) == table.blocks()[1] * 4 + 2);
    BlockTable other(&pool);
    CHECK_FALSE(other.Grow(12));
    CHECK(other.blocks().empty());
    CHECK(pool.free_blocks() == 2);
    pool.AddReference(table.blocks()[0]);
    other.Adopt(table.blocks()[0]);
    CHECK(table.ExclusiveBlocks() == 1);
    BlockTable moved = std::move(table);
    CHECK(moved.blocks().size() == 2);
  }
  CHECK(pool.free_blocks() == 4);
}

TEST_CASE("random use never loses a block or gives one out twice") {
  std::mt19937 random(7);
  const auto draw = [&](int n) { return static_cast<int>(random() % n); };
  BlockPool pool(20, 4);
  std::vector<int> references(20, 0);
  std::vector<int32_t> held;  // one entry per reference
  for (int i = 0; i < 20000; ++i) {
    const int action = draw(4);
    if (action == 0) {
      const int32_t block = pool.Allocate();
      if (block >= 0) {
        REQUIRE(references[block] == 0);
        references[block] = 1;
        held.push_back(block);
        if (draw(2) == 0) pool.MarkCached(block);
      }
    } else if (action == 1 && !held.empty()) {
      const int32_t block = held[draw(held.size())];
      pool.AddReference(block);
      ++references[block];
      held.push_back(block);
    } else if (!held.empty()) {
      const size_t at = draw(held.size());
      pool.Release(held[at]);
      --references[held[at]];
      held.erase(held.begin() + at);
    }
    int free_blocks = 0;
    for (const int count : references) free_blocks += count == 0 ? 1 : 0;
    REQUIRE(pool.free_blocks() == free_blocks);
  }
}

}  // namespace
}  // namespace tessera::kvcache
