#include "kvcache/prefix_index.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <vector>

namespace tessera::kvcache {
namespace {

using Tokens = std::vector<int32_t>;

Tokens Sequence(int32_t first, size_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Computes the full blocks of `tokens` as a sequence would and leaves them released.
std::vector<int32_t> Store(BlockPool* pool, PrefixIndex* index, const std::string& salt,
                           const Tokens& tokens) {
  BlockTable table(pool);
  REQUIRE(table.Grow(tokens.size()));
  const size_t size = pool->block_tokens();
  PrefixNode node = 0;
  for (size_t i = 0; (i + 1) * size <= tokens.size(); ++i) {
    node = index->Insert(salt, node, std::span(tokens).subspan(i * size, size), table.blocks()[i]);
  }
  return table.blocks();
}

TEST_CASE("the longest run of full blocks is found, in order") {
  BlockPool pool(8, 4);
  PrefixIndex index(&pool);
  const Tokens tokens = Sequence(10, 14);  // three full blocks and a half
  const std::vector<int32_t> blocks = Store(&pool, &index, "", tokens);
  CHECK(index.size() == 3);

  PrefixMatch match = index.Find("", tokens);
  CHECK(match.blocks == std::vector<int32_t>(blocks.begin(), blocks.begin() + 3));
  CHECK(match.idle_blocks == 3);

  Tokens other = tokens;
  other[6] = 0;
  CHECK(index.Find("", other).blocks.size() == 1);
  CHECK(index.Find("", std::span(tokens).first(11)).blocks.size() == 2);
  CHECK(index.Find("", std::span(tokens).first(3)).blocks.empty());
  // The same block of tokens elsewhere is another prefix.
  CHECK(index.Find("", std::span(tokens).subspan(4)).blocks.empty());
}

TEST_CASE("prefixes are shared only between equal salts") {
  BlockPool pool(8, 4);
  PrefixIndex index(&pool);
  const Tokens tokens = Sequence(0, 8);
  Store(&pool, &index, "alice", tokens);
  CHECK(index.Find("bob", tokens).blocks.empty());
  CHECK(index.Find("", tokens).blocks.empty());
  CHECK(index.Find("alice", tokens).blocks.size() == 2);
  Store(&pool, &index, "bob", tokens);
  CHECK(index.Find("bob", tokens).blocks != index.Find("alice", tokens).blocks);
}

TEST_CASE("an equal prefix computed twice is indexed once and the second copy is free again") {
  BlockPool pool(4, 4);
  PrefixIndex index(&pool);
  const Tokens tokens = Sequence(0, 4);
  BlockTable first(&pool), second(&pool);
  REQUIRE((first.Grow(4) && second.Grow(4)));
  const PrefixNode node = index.Insert("", 0, tokens, first.blocks()[0]);
  CHECK(index.Insert("", 0, tokens, second.blocks()[0]) == node);
  CHECK(index.Find("", tokens).blocks == first.blocks());
  CHECK(index.Find("", tokens).idle_blocks == 0);
  first.Clear();
  CHECK(index.Find("", tokens).idle_blocks == 1);
}

TEST_CASE("an evicted block is forgotten, the end of a prompt before its start") {
  BlockPool pool(4, 4);
  PrefixIndex index(&pool);
  const Tokens tokens = Sequence(0, 16);
  Store(&pool, &index, "", tokens);
  BlockTable table(&pool);
  REQUIRE(table.Grow(4));
  CHECK(index.size() == 3);
  CHECK(index.Find("", tokens).blocks.size() == 3);
  REQUIRE(table.Grow(16));
  CHECK(index.size() == 0);
  CHECK(index.Find("", tokens).blocks.empty());
}

TEST_CASE("a child of an evicted node is not reachable through the node's successor") {
  BlockPool pool(3, 2);
  PrefixIndex index(&pool);
  const int32_t parent = pool.Allocate(), child = pool.Allocate(), filler = pool.Allocate();
  const Tokens tokens = {1, 2, 3, 4};
  const PrefixNode node = index.Insert("", 0, std::span(tokens).first(2), parent);
  index.Insert("", node, std::span(tokens).last(2), child);
  pool.Release(parent);
  REQUIRE(pool.Allocate() == parent);  // evicted while the child lives on
  const PrefixNode again = index.Insert("", 0, std::span(tokens).first(2), parent);
  CHECK(again != node);
  CHECK(index.Find("", tokens).blocks == std::vector<int32_t>{parent});
  pool.Release(filler);
}

// Blocks of 4 tokens, and a window of 9: a token sees itself and 8 before it, two whole blocks.
struct Windowed {
  // Computes the full blocks of `tokens`, gives back what no token behind them sees, and releases.
  void Store(const Tokens& tokens, int64_t keep = 9) {
    BlockTable table(&pool), window(&window_pool);
    REQUIRE((table.Grow(tokens.size()) && window.Grow(tokens.size())));
    PrefixNode node = 0;
    for (size_t i = 0; (i + 1) * 4 <= tokens.size(); ++i) {
      node = index.Insert("", node, std::span(tokens).subspan(i * 4, 4), table.blocks()[i],
                          window.blocks()[i]);
    }
    window.FreeBefore(static_cast<int64_t>(tokens.size()) + 1 - keep);
  }

  BlockPool pool{32, 4}, window_pool{8, 4};
  PrefixIndex index{&pool, &window_pool, 9};
};

TEST_CASE("windows: a match has the window blocks that the next token sees") {
  Windowed w;
  const Tokens tokens = Sequence(10, 24);
  w.Store(tokens);
  const PrefixMatch match = w.index.Find("", tokens);
  CHECK(match.blocks.size() == 6);
  CHECK(match.window_blocks.size() == 2);
  // A shorter prompt sees the window blocks before its own end, which nobody has evicted yet.
  CHECK(w.index.Find("", std::span(tokens).first(12)).blocks.size() == 3);
  CHECK(w.index.Find("", std::span(tokens).first(4)).window_blocks.size() == 1);
}

TEST_CASE("windows: where window blocks were evicted, a match ends before the gap or behind it") {
  Windowed w;
  const Tokens tokens = Sequence(10, 24);
  w.Store(tokens);
  // Those that the sequence gave back behind its window go first: the ones of blocks 3, 2, 1, 0.
  BlockTable others(&w.window_pool);
  REQUIRE(others.Grow(2 * 4));  // the two that are empty
  REQUIRE(others.Grow(3 * 4));  // and that of block 3
  CHECK(w.index.Find("", tokens).blocks.size() == 6);
  CHECK(w.index.Find("", std::span(tokens).first(20)).blocks.size() == 3);
  CHECK(w.index.Find("", std::span(tokens).first(16)).blocks.size() == 3);
  REQUIRE(others.Grow(6 * 4));
  CHECK(w.index.Find("", std::span(tokens).first(20)).blocks.empty());
  CHECK(w.index.Find("", tokens).blocks.size() == 6);
  REQUIRE(others.Grow(7 * 4));
  CHECK(w.index.Find("", tokens).blocks.empty());
}

TEST_CASE("windows: a node takes the window block that it lacks, and loses it with its block") {
  Windowed w;
  const Tokens tokens = Sequence(10, 12);
  w.Store(tokens);
  {
    BlockTable all(&w.window_pool);
    REQUIRE(all.Grow(8 * 4));
  }
  CHECK(w.index.Find("", tokens).blocks.empty());
  w.Store(tokens);
  CHECK(w.index.Find("", tokens).blocks.size() == 3);
  CHECK(w.index.size() == 3);
  BlockTable table(&w.pool);
  REQUIRE(table.Grow(32 * 4));  // evicts every block
  CHECK(w.index.size() == 0);
  BlockTable window(&w.window_pool);
  REQUIRE(window.Grow(8 * 4));  // their window blocks are empty, and theirs alone
  table.Clear();
  window.Clear();
  CHECK(w.window_pool.free_blocks() == 8);
}

TEST_CASE("random prompts find exactly what an exhaustive search finds") {
  std::mt19937 random(3);
  BlockPool pool(64, 2);
  PrefixIndex index(&pool);
  std::vector<Tokens> stored;
  for (int i = 0; i < 12; ++i) {  // few token values, so that prefixes coincide often
    Tokens tokens(4 + random() % 6);
    for (int32_t& token : tokens) token = random() % 2;
    Store(&pool, &index, "s", tokens);
    stored.push_back(tokens);
    Tokens wanted(10);
    for (int32_t& token : wanted) token = random() % 2;
    size_t best = 0;
    for (const Tokens& tokens : stored) {
      size_t blocks = 0;
      while ((blocks + 1) * 2 <= std::min(tokens.size(), wanted.size()) &&
             std::equal(tokens.begin(), tokens.begin() + (blocks + 1) * 2, wanted.begin())) {
        ++blocks;
      }
      best = std::max(best, blocks);
    }
    REQUIRE(index.Find("s", wanted).blocks.size() == best);
  }
}

}  // namespace
}  // namespace tessera::kvcache
