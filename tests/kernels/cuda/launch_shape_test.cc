// Launch shapes as numbers: what CUDA accepts, that they cover the problem, what they depend on.
#include "kernels/cuda/launch/launch_shape.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>

#include "kernels/cuda/launch/kv_shapes.h"
#include "kernels/cuda/launch/mapped_sum_shape.h"
#include "kernels/cuda/launch/plain_shapes.h"

namespace tessera::kernels::cuda {
namespace {

TEST_CASE("a legal shape stays within CUDA's limits") {
  CHECK(LaunchShape{}.IsLegal());
  CHECK(LaunchShape{.blocks = {kMaxGridX, 65535, 65535}, .threads = {1024}}.IsLegal());
  CHECK(LaunchShape{.shared_bytes = kMaxSharedBytes}.IsLegal());
  CHECK_FALSE(LaunchShape{.blocks = {kMaxGridX + 1}}.IsLegal());
  CHECK_FALSE(LaunchShape{.blocks = {1, 65536}}.IsLegal());
  CHECK_FALSE(LaunchShape{.blocks = {1, 1, 0}}.IsLegal());
  CHECK_FALSE(LaunchShape{.threads = {512, 3}}.IsLegal());
  CHECK_FALSE(LaunchShape{.threads = {1, 1, 65}}.IsLegal());
  CHECK_FALSE(LaunchShape{.shared_bytes = kMaxSharedBytes + 1}.IsLegal());
}

TEST_CASE("shapes of plain kernels are legal and cover every extent") {
  for (const int64_t rows : {1, 4, 5, 300, 1000000}) {
    for (const int64_t width : {1, 31, 32, 33, 512, 513, 8192, 260000}) {
      CAPTURE(rows, width);
      const LaunchShape norm = NormShape(rows, width);
      CHECK(norm.IsLegal());
      CHECK(norm.blocks.x * norm.threads.y >= rows);
      CHECK((norm.blocks.x - 1) * norm.threads.y < rows);
      CHECK(norm.threads.x % kWarpThreads == 0);
      CHECK(norm.threads.x / kWarpThreads <= kMaxNormWarps);
      // Warps that share a sum meet at __syncthreads: one vector a block.
      CHECK((norm.threads.x == kWarpThreads || norm.threads.y == 1));

      const LaunchShape matmul = MatmulShape(rows, width);
      CHECK(matmul.IsLegal());
      CHECK(matmul.blocks.x * kMatmulTile >= rows);
      CHECK(matmul.blocks.y * kMatmulTile >= width);

      const LaunchShape row = RowShape(rows, width);
      CHECK(row.IsLegal());
      CHECK(row.blocks.count() == rows);
      CHECK(row.threads.x % kWarpThreads == 0);
      CHECK(row.threads.x <= kMaxRowThreads);

      const LaunchShape spread = SpreadShape(rows, width);
      CHECK(spread.IsLegal());
      CHECK(spread.blocks.x == rows);
      CHECK(spread.threads.x == row.threads.x);
      CHECK(spread.blocks.y * spread.threads.x >= width);
      CHECK((spread.blocks.y - 1) * spread.threads.x < width);

      const LaunchShape logits = LogitsShape(rows, width);
      CHECK(logits.IsLegal());
      CHECK(logits.blocks.count() == rows);
      CHECK(logits.threads.count() == logits.threads.x);
      CHECK(logits.threads.x % kWarpThreads == 0);
      CHECK(logits.threads.x / kWarpThreads <= kMaxLogitsWarps);
      CHECK(logits.threads.x == LogitsShape(1, width).threads.x);
      CHECK((width < 260000 || logits.threads.x == 1024));

      const LaunchShape heads = HeadsShape(rows, std::min<int64_t>(width, 512));
      CHECK(heads.IsLegal());
      CHECK(heads.threads.x == kWarpThreads);
      CHECK(heads.blocks.x == rows);
      CHECK(heads.blocks.y * heads.threads.y >= std::min<int64_t>(width, 512));

      const LaunchShape element = ElementShape(width);
      CHECK(element.IsLegal());
      CHECK(element.blocks.x * element.threads.x >= width);
      CHECK((element.blocks.x - 1) * element.threads.x < width);
    }
  }
}

TEST_CASE("plain attention: heads of up to 8000 fit in the least shared memory of any GPU") {
  constexpr int64_t kMinSharedBytes = 64 << 10;  // capability 7.5
  for (const int64_t head_dim : {1, 80, 256, 8000}) {
    const LaunchShape shape = AttendShape(7, 64, head_dim);
    CHECK(shape.IsLegal());
    CHECK(shape.blocks.x == 7);
    CHECK(shape.blocks.y == 64);
    CHECK(shape.shared_bytes == 8 * (kAttentionTile + head_dim));
    CHECK(shape.shared_bytes <= kMinSharedBytes);
  }
}

TEST_CASE("routing: a warp per row, and a block that sorts with room for its counts") {
  for (const int64_t rows : {1, 3, 4, 5, 100000}) {
    const LaunchShape shape = WarpRowsShape(rows);
    CHECK(shape.IsLegal());
    CHECK(shape.threads.x == kWarpThreads);
    CHECK(shape.blocks.x * shape.threads.y >= rows);
    CHECK((shape.blocks.x - 1) * shape.threads.y < rows);
  }
  for (const int64_t choices : {0, 1, 33, 512, 16384}) {
    for (const int64_t experts : {1, 8, 128, 384, 8192}) {
      CAPTURE(choices, experts);
      const LaunchShape shape = SortShape(choices, experts);
      CHECK(shape.IsLegal());
      CHECK(shape.blocks.count() == 1);
      CHECK(shape.threads.x == kWarpThreads);
      CHECK(shape.shared_bytes == (shape.threads.y + 1) * experts * 4);
      CHECK(shape.shared_bytes <= 64 << 10);  // capability 7.5
    }
  }
  CHECK(SortShape(8, 128).threads.y == 1);
  CHECK(SortShape(512, 128).threads.y == 16);
  CHECK(SortShape(16384, 128).threads.y == 32);
}

TEST_CASE("shapes of KV's codecs are legal and have room for every scale") {
  for (const int64_t count : {1, 127, 128, 129, 1000000}) {
    const LaunchShape units = KvUnitShape(count);
    CHECK(units.IsLegal());
    CHECK(units.blocks.x * units.threads.x >= count);
    CHECK((units.blocks.x - 1) * units.threads.x < count);
    CHECK(KvGroupShape(count, 128).blocks.count() == count);
  }
  for (const int64_t head_dim : {1, 63, 64, 65, 128, 4096}) {
    const LaunchShape shape = KvGroupShape(1, head_dim);
    CHECK(shape.IsLegal());
    CHECK(shape.shared_bytes == 8 * MaxKvGroupScales(head_dim));
    CHECK(shape.shared_bytes <= kPlainSharedBytes);
    CHECK(MaxKvGroupScales(head_dim) >= head_dim);
    CHECK(MaxKvGroupScales(head_dim) == 64 * ((head_dim + 63) / 64));
  }
}

TEST_CASE("a wide norm's threads hold the whole vector") {
  CHECK_FALSE(HasWideNorm(512));
  CHECK_FALSE(HasWideNorm(16388));
  for (const int64_t width : {516, 1024, 4096, 5120, 16384}) {
    CAPTURE(width);
    REQUIRE(HasWideNorm(width));
    const LaunchShape shape = WideNormShape(3, width);
    CHECK(shape.IsLegal());
    CHECK(shape.blocks.count() == 3);
    CHECK(shape.threads.x % kWarpThreads == 0);
    CHECK(shape.threads.x <= kWarpThreads * kMaxWideNormWarps);
    CHECK(4 * kWideNormFours * shape.threads.x >= width);
  }
}

TEST_CASE("a sum of ranks has the same blocks for every count, which hold all values") {
  for (const int64_t count : {1, 63, 64, 65, 4096, 65536}) {
    CAPTURE(count);
    const LaunchShape shape = MappedSumShape(count);
    CHECK(shape.IsLegal());
    CHECK(shape.blocks.count() == kMappedSumBlocks);
    CHECK(shape.threads.x % kWarpThreads == 0);
    CHECK(shape.threads.x <= kMaxMappedSumThreads);
    CHECK(4 * MappedSumFours(count) * kMappedSumBlocks >= count);
  }
  // 16 KiB: a value's four to a thread.
  CHECK(MappedSumShape(4096).threads.x == 64);
}

TEST_CASE("how a norm sums depends on the width alone") {
  for (const int64_t width : {1, 512, 513, 8192}) {
    const LaunchShape one = NormShape(1, width), many = NormShape(4096, width);
    CHECK(one.threads.x == many.threads.x);
    CHECK(one.threads.y == many.threads.y);
  }
  CHECK(WideNormShape(1, 4096).threads.x == WideNormShape(4096, 4096).threads.x);
}

}  // namespace
}  // namespace tessera::kernels::cuda
