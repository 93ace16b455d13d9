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
