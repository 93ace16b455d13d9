// Drafts by suffix match: what followed where the last tokens stood before.
#include "worker/drafts/ngram_source.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "tests/worker/engine/submits.h"

namespace tessera::worker {
namespace {

using Tokens = std::vector<int32_t>;

Tokens Proposed(const Tokens& tokens, int64_t most) {
  NgramSource source;
  Tokens drafts = {99};
  source.Propose(tokens, most, &drafts);
  return drafts;
}

Tokens Joined(std::initializer_list<Tokens> parts) {
  Tokens all;
  for (const Tokens& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

const Tokens kEight = {1, 2, 3, 4, 5, 6, 7, 8};
const Tokens kSeven = {2, 3, 4, 5, 6, 7, 8};

TEST_CASE("what followed eight tokens is proposed behind them, seven are too few") {
  CHECK(Proposed(Joined({kEight, {20, 21, 22, 23}, kEight}), 3) == Tokens{20, 21, 22});
  CHECK(Proposed(Joined({kEight, {20, 21, 22, 23, 9}, kSeven}), 3).empty());
  CHECK(Proposed(Joined({{30}, kSeven, {20, 21}, {31}, kSeven}), 3).empty());
  CHECK(Proposed(kEight, 3).empty());
  CHECK(Proposed({}, 3).empty());
  CHECK(Proposed(Joined({kEight, {20, 21}, kEight}), 0).empty());
}

TEST_CASE("the newest place counts, and a text that repeats itself goes on so") {
  CHECK(Proposed(Joined({kEight, {20}, kEight, {21}, kEight}), 1) == Tokens{21});
  // Two tokens follow the place; they are the beginning of the period.
  CHECK(Proposed(Tokens(20, 5), 6) == Tokens(6, 5));
  Tokens period;
  for (int i = 0; i < 31; ++i) period.push_back(i % 3);
  CHECK(Proposed(period, 6) == Tokens{1, 2, 0, 1, 2, 0});
}

TEST_CASE("token by token, it proposes what it does at once, and says before when it cannot") {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const Tokens tokens = Prompt(400, seed, /*vocabulary=*/2);
    NgramSource source;
    int64_t proposed = 0;
    bool may = true;
    for (int64_t length = 1; length <= std::ssize(tokens); ++length) {
      const Tokens known(tokens.begin(), tokens.begin() + length);
      Tokens drafts;
      source.Propose(known, 4, &drafts);
      if (!drafts.empty()) {
        REQUIRE(may);
        ++proposed;
      }
      if (length % 50 == 0) REQUIRE(drafts == Proposed(known, 4));
      may = source.MayProposeNext(known);
    }
    CHECK(proposed > 0);
  }
  CHECK_FALSE(NgramSource().MayProposeNext(Prompt(30, 1, 1'000'000)));
}

}  // namespace
}  // namespace tessera::worker
