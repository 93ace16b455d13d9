// Launches of attention on tensor cores as numbers: what each architecture gives, that tiles and
// splits cover every row and key, what they depend on.
#include "kernels/cuda/launch/attention_shapes.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cuda/launch/divisor.h"

namespace tessera::kernels::cuda {
namespace {

constexpr int64_t kHeadSizes[] = {64, 80, 96, 128, 256};

struct Architecture {
  int capability;
  int64_t block_bytes;  // the most shared memory of one block
};
constexpr Architecture kArchitectures[] = {
    {75, 64 << 10},  {80, 163 << 10},  {86, 99 << 10},   {87, 163 << 10}, {89, 99 << 10},
    {90, 227 << 10}, {100, 227 << 10}, {103, 227 << 10}, {120, 99 << 10}, {121, 99 << 10}};

TEST_CASE("attention takes the usual head sizes, whose rows fill banks of shared memory evenly") {
  int taken = 0;
  for (int64_t head_dim = 0; head_dim <= 512; ++head_dim) taken += HasTensorAttention(head_dim);
  CHECK(taken == 5);
  for (const int64_t head_dim : kHeadSizes) {
    CAPTURE(head_dim);
    CHECK(HasTensorAttention(head_dim));
    CHECK(TileRowBytes(head_dim) >= 2 * head_dim);
    // Eight rows begin in eight unlike groups of four banks, or all in the first one.
    std::vector<int> groups;
    for (int row = 0; row < 8; ++row) groups.push_back(row * TileRowBytes(head_dim) / 16 % 8);
    std::sort(groups.begin(), groups.end());
    CHECK((groups == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7} || groups == std::vector<int>(8)));
  }
}

TEST_CASE("attention: legal shapes within the shared memory of every architecture") {
  for (const Architecture& architecture : kArchitectures) {
    for (const int64_t head_dim : kHeadSizes) {
      for (const int64_t group : {1, 4, 16, 17, 71}) {
        CAPTURE(architecture.capability, head_dim, group);
        const TensorAttentionExtents extents = {2048, 256, 8 * group, 8, head_dim, 131072};
        const TiledShape prefill = PrefillShape(extents, architecture.capability);
        const TiledShape decode = DecodeShape(extents, architecture.capability);
        for (const TiledShape& tiled : {prefill, decode}) {
          CHECK(tiled.shape.IsLegal());
          CHECK(tiled.shape.shared_bytes <= architecture.block_bytes);
          CHECK(tiled.slots >= kMinTileSlots);
          CHECK(tiled.slots <= kMaxTileSlots);
        }
        const int warps = DecodeWarps(head_dim);
        const int row_tiles = PrefillRowTiles(head_dim, architecture.capability);
        CHECK(row_tiles <= MaxPrefillRowTiles(head_dim));
        CHECK(prefill.shape.threads.count() == kPrefillWarps * kWarpThreads);
        CHECK(decode.shape.threads.count() == warps * kWarpThreads);
        CHECK(prefill.shape.shared_bytes ==
              kPrefillWarps * QueryBytes(head_dim, row_tiles) +
                  prefill.slots * PrefillTileKeys(head_dim) * TileRowBytes(head_dim));
        CHECK(decode.shape.shared_bytes == QueryBytes(head_dim, 1) + warps * decode.slots *
                                                                         kDecodeTileKeys *
                                                                         TileRowBytes(head_dim));
        CHECK(decode.shape.blocks.y * kWarpRows >= 8 * group);
        CHECK(CombineShape(extents).IsLegal());
        CHECK(CombineShape(extents).blocks.x * CombineShape(extents).threads.x / kWarpThreads >=
              8 * group);
      }
    }
  }
  // What an H100 and an RTX 4090 have room for.
  const TensorAttentionExtents extents = {1, 1, 8, 8, 128, 4096};
  CHECK(PrefillShape(extents, 90).slots == 4);
  CHECK(DecodeShape(extents, 90).slots == 3);
  CHECK(PrefillShape(extents, 89).slots == 2);
  CHECK(DecodeShape(extents, 89).slots == 2);
  // Rows of a warp.
  CHECK(PrefillRowTiles(128, 90) == 2);
  CHECK(PrefillRowTiles(128, 80) == 2);
  CHECK(PrefillRowTiles(128, 89) == 1);
  CHECK(PrefillRowTiles(64, 89) == 2);
  CHECK(PrefillRowTiles(64, 75) == 1);
  CHECK(PrefillRowTiles(256, 90) == 1);
}

TEST_CASE("attention: every sequence of prefill gets the tiles that it needs") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    const int64_t group = 1 + static_cast<int64_t>(random() % 9);
    const int64_t sequences = 1 + static_cast<int64_t>(random() % 20);
    std::vector<int64_t> starts = {0};
    for (int64_t s = 0; s < sequences; ++s) {
      starts.push_back(starts.back() + static_cast<int64_t>(random() % 150));
    }
    const int64_t rows = std::max<int64_t>(1, starts.back()) + static_cast<int64_t>(random() % 3);
    for (const int capability : {89, 90}) {
      const int64_t block_rows = PrefillRowTiles(128, capability) * kPrefillWarps * kWarpRows;
      const int64_t blocks =
          PrefillShape({rows, sequences, 3 * group, 3, 128, 512}, capability).shape.blocks.x;
      CHECK(blocks % 3 == 0);
      const auto first = [&](int64_t s) { return starts[s] * group / block_rows + s; };
      for (int64_t s = 0; s < sequences; ++s) {
        const int64_t end = s + 1 < sequences ? first(s + 1) : blocks / 3;
        CHECK((end - first(s)) * block_rows >= (starts[s + 1] - starts[s]) * group);
      }
    }
  }
}

TEST_CASE("a divisor's quotients are those of a division") {
  std::mt19937_64 random(7);
  const int64_t most = std::numeric_limits<int>::max();
  for (int64_t number = 1; number <= int64_t{1} << 30; number += 1 + number / 3) {
    const Divisor divisor = DivisorOf(number);
    std::vector<int64_t> dividends = {0, 1, number - 1, number, number + 1, 2 * number - 1, most};
    for (int i = 0; i < 100; ++i) {
      const int64_t multiple = static_cast<int64_t>(random() % (most / number + 1)) * number;
      for (int64_t near = multiple - 1; near <= multiple + 1; ++near) dividends.push_back(near);
    }
    for (const int64_t dividend : dividends) {
      if (dividend < 0 || dividend > most) continue;
      CAPTURE(number, dividend);
      REQUIRE(divisor.Of(static_cast<int>(dividend)) == dividend / number);
    }
  }
}

TEST_CASE("attention: splits cover a context, and are the same however long others may be") {
  for (const int context : {1, 256, 257, 8192, 8193, 40000, 131072, 1000000}) {
    CAPTURE(context);
    const int keys = SplitKeys(context), splits = (context + keys - 1) / keys;
    CHECK(keys % kSplitKeys == 0);
    CHECK(keys % (4 * kDecodeTileKeys) == 0);
    CHECK(splits <= MaxSplits(context));
    CHECK(splits <= MaxSplits(2 * context));
    CHECK(MaxSplits(context) <= kMaxSplits);
    CHECK((keys == kSplitKeys) == (context <= kSplitKeys * kMaxSplits));
  }
  CHECK(PartialBytes(3, 8, 128, 1024) == 3 * 8 * 4 * 130 * 4);
  CHECK(PartialBytes(3, 8, 128, 0) == 3 * 8 * 130 * 4);
}

}  // namespace
}  // namespace tessera::kernels::cuda
