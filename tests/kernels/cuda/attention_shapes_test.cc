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

constexpr int64_t kHeadSizes[] = {64, 80, 96, 112, 120, 128, 160, 192, 256};

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
  CHECK(taken == 25);
  for (const int64_t of_model : kHeadSizes) {
    CAPTURE(of_model);
    CHECK(HasTensorAttention(of_model));
    const int64_t head_dim = PaddedHead(of_model);
    CHECK(head_dim >= of_model);
    CHECK(TileRowBytes(head_dim) >= 2 * head_dim);
    // Eight rows begin in eight unlike groups of four banks, or all in the first one.
    std::vector<int> groups;
    for (int row = 0; row < 8; ++row) groups.push_back(row * TileRowBytes(head_dim) / 16 % 8);
    std::sort(groups.begin(), groups.end());
    CHECK((groups == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7} || groups == std::vector<int>(8)));
  }
}

TEST_CASE("attention of wide heads: legal shapes within the shared memory of what has it") {
  for (const Architecture& architecture : kArchitectures) {
    for (const int64_t head_dim : {512, 576}) {
      CAPTURE(architecture.capability, head_dim);
      CHECK(IsWideHead(head_dim));
      CHECK(PaddedHead(head_dim) == head_dim);
      const bool taken = HasWideAttention(head_dim, architecture.capability);
      CHECK(taken == (architecture.capability >= 80));
      if (!taken) continue;
      const TensorAttentionExtents extents = {2048, 256, 128, 1, head_dim, 131072};
      const Wave rows = PrefillWave(extents);
      CHECK(rows.splits == 131072 / kWideSplitKeys);
      CHECK(PartialBytes(extents) == rows.bytes);
      const TiledShape tiled = WideShape(extents, rows.count, architecture.capability);
      CHECK(tiled.shape.IsLegal());
      CHECK(tiled.shape.shared_bytes <= architecture.block_bytes);
      CHECK(tiled.slots >= kMinTileSlots);
      CHECK(tiled.slots <= kMaxTileSlots);
    }
  }
  CHECK_FALSE(HasWideAttention(256, 90));
  CHECK_FALSE(HasWideAttention(520, 90));
  // One row at 32k of a DeepSeek: a block for each tile of its 128 heads and each split.
  const TensorAttentionExtents one = {1, 1, 128, 1, 576, 32768};
  const LaunchShape shape = WideShape(one, 1, 90).shape;
  CHECK(shape.blocks.x * shape.blocks.y >= 256);
}

TEST_CASE("attention: legal shapes within the shared memory of every architecture") {
  for (const Architecture& architecture : kArchitectures) {
    for (const int64_t of_model : kHeadSizes) {
      for (const int64_t group : {1, 4, 16, 17, 71}) {
        CAPTURE(architecture.capability, of_model, group);
        const int64_t head_dim = PaddedHead(of_model);
        const TensorAttentionExtents extents = {2048, 256, 8 * group, 8, of_model, 131072};
        const Wave wave = DecodeWave(extents, false), rows = PrefillWave(extents);
        const TiledShape prefill = PrefillShape(extents, rows.count, architecture.capability);
        const TiledShape decode = DecodeShape(extents, wave, architecture.capability);
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
        CHECK(decode.shape.blocks.y * kWarpRows >= 8 * group * kFewRows);
        CHECK(decode.shape.blocks.z == wave.count);
        CHECK(prefill.shape.blocks.y == rows.splits);
        CHECK(CombineShape(8 * group, wave.count * wave.rows_each).IsLegal());
        CHECK(CombineShape(8 * group, rows.count).IsLegal());
      }
    }
  }
  // What an H100 and an RTX 4090 have room for.
  const TensorAttentionExtents extents = {1, 1, 8, 8, 128, 4096};
  const Wave one = DecodeWave(extents, true);
  CHECK(PrefillShape(extents, 1, 90).slots == 4);
  CHECK(DecodeShape(extents, one, 90).slots == 3);
  CHECK(PrefillShape(extents, 1, 89).slots == 2);
  CHECK(DecodeShape(extents, one, 89).slots == 2);
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
          PrefillShape({rows, sequences, 3 * group, 3, 128, 512}, rows, capability).shape.blocks.x;
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

TEST_CASE("attention: every row of a part of a call lies in the tiles of its launch") {
  std::mt19937_64 random(4);
  for (int round = 0; round < 200; ++round) {
    const int64_t group = 1 + static_cast<int64_t>(random() % 9);
    std::vector<int64_t> starts = {0};
    for (int s = 0; s < 6; ++s) starts.push_back(starts.back() + 1 + random() % 150);
    const int64_t rows = starts.back(), first = static_cast<int64_t>(random() % rows);
    const int64_t count = 1 + static_cast<int64_t>(random() % (rows - first));
    if (count == rows) continue;
    const int64_t block_rows = PrefillRowTiles(128, 90) * kPrefillWarps * kWarpRows;
    const TensorAttentionExtents extents = {rows, 6, group, 1, 128, 512};
    const int64_t first_tile = first * group / block_rows;
    const int64_t end_tile = first_tile + PrefillShape(extents, count, 90).shape.blocks.x;
    for (int64_t s = 0; s < 6; ++s) {
      for (int64_t row = starts[s]; row < starts[s + 1]; ++row) {
        if (row < first || row >= first + count) continue;
        const int64_t begin = starts[s] * group / block_rows + s;
        CHECK(begin + (row - starts[s]) * group / block_rows >= first_tile);
        CHECK(begin + ((row - starts[s]) * group + group - 1) / block_rows < end_tile);
      }
    }
  }
}

TEST_CASE("attention: splits cover a context, and are the same however long others may be") {
  int split = 0;
  for (int key = 0; key < 200000; ++key) {
    if (key == FirstKeyOfSplit(split + 1)) ++split;
    REQUIRE(SplitOf(key) == split);
    REQUIRE(MaxSplits(key + 1) == split + 1);
  }
  for (int i = 0; i < 200; ++i) {
    const int keys = FirstKeyOfSplit(i + 1) - FirstKeyOfSplit(i);
    CHECK(keys % (4 * kDecodeTileKeys) == 0);
    CHECK((keys == kSplitKeys) == (i < kLongContext / kSplitKeys));
  }
  CHECK(MaxSplits(0) == 1);
  CHECK(MaxPrefillSplits(kPrefillSplitKeys) == 1);
  CHECK(MaxPrefillSplits(kPrefillSplitKeys + 1) == 2);
}

TEST_CASE("attention: few rows behind a long context fill a GPU") {
  const auto blocks = [](const TensorAttentionExtents& extents, bool one_row) {
    return DecodeShape(extents, DecodeWave(extents, one_row), 90).shape.blocks.count();
  };
  CHECK(blocks({2, 1, 32, 8, 128, 32768}, false) >= 256);
  CHECK(blocks({1, 1, 8, 1, 128, 131072}, true) >= 128);
  CHECK(blocks({7, 1, 8, 1, 128, 131072}, false) >= 128);
  // The rest of a prompt: blocks of prefill that have keys.
  const TensorAttentionExtents rest = {64, 1, 32, 8, 128, 32768};
  CHECK(PrefillShape(rest, PrefillWave(rest).count, 90).shape.blocks.count() >= 128);
  // Among many sequences the longest context does not multiply blocks.
  CHECK(blocks({256, 256, 32, 8, 128, 131072}, true) <= 256 * 8 * kMinSplitBlocks);
}

TEST_CASE("attention: what splits leave behind is bounded, and no smaller call takes more") {
  CHECK(PartialBytes({3, 3, 8, 8, 128, 256}) == 0);
  CHECK(PartialBytes({3, 3, 8, 8, 128, 1024}) == 3 * 3 * 8 * 4 * 130 * 4);
  CHECK(DecodeWave({3, 3, 8, 8, 128, 1024}, true).bytes == 3 * 8 * 4 * 130 * 4);
  CHECK(DecodeWave({256, 256, 32, 8, 128, 8192}, true).count == 256);
  const TensorAttentionExtents most = {2048, 256, 32, 8, 128, 131072};
  CHECK(PartialBytes(most) == kMaxPartialBytes);
  for (const int64_t rows : {1, 9, 700, 2048}) {
    for (const int64_t sequences : {1, 7, 256}) {
      for (const int64_t context : {300, 5000, 40000, 131072}) {
        const TensorAttentionExtents extents = {rows, sequences, 32, 8, 128, context};
        CHECK(PartialBytes(extents) <= PartialBytes(most));
        for (const Wave& wave : {DecodeWave(extents, true), DecodeWave(extents, false)}) {
          CHECK(wave.count >= 1);
          CHECK(wave.count <= sequences);
          if (wave.splits > 1)
            CHECK(wave.count * wave.rows_each * 32 * wave.splits * 130 * 4 <= wave.bytes);
        }
        const Wave wave = PrefillWave(extents);
        CHECK(wave.count >= 1);
        CHECK(wave.count <= rows);
        if (wave.splits > 1) CHECK(wave.count * 32 * wave.splits * 130 * 4 <= wave.bytes);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::cuda
