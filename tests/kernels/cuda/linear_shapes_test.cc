// Which kernel serves which linear, and shapes of launches as numbers.
#include "kernels/cuda/launch/linear_shapes.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>

namespace tessera::kernels::cuda {
namespace {

using enum DType;

LinearKernel Choice(DType in, DType weights, DType products, int64_t rows, int capability = 90,
                    int64_t group_size = 128, int64_t experts = 1) {
  return ChooseLinear({.in = in,
                       .weights = weights,
                       .products = products,
                       .group_size = group_size,
                       .rows = rows,
                       .experts = experts},
                      capability);
}

TEST_CASE("float32 weights have the plain kernel, whose sums run in one order") {
  for (const int64_t rows : {1, 8, 9, 1000}) {
    for (const DType in : {kF32, kF16, kBF16}) {
      CHECK(Choice(in, kF32, kBF16, rows) == LinearKernel::kPlain);
    }
  }
}

TEST_CASE("few rows have GEMV, many have tensor cores where their type allows it") {
  for (const DType weights : {kF16, kBF16, kI8, kI4}) {
    INFO(Name(weights));
    const DType half = weights == kI8 || weights == kI4 ? kBF16 : weights;
    for (const DType in : {kF32, half}) {
      CHECK(Choice(in, weights, half, 1) == LinearKernel::kGemv);
      CHECK(Choice(in, weights, half, kMaxGemvRows) == LinearKernel::kGemv);
      CHECK(Choice(in, weights, half, kMaxGemvRows + 1) == LinearKernel::kTensorCores);
    }
    // What must not be rounded is not, and has one kernel, whatever rows are beside it.
    for (const int64_t rows : {1, 8, 9, 1000}) {
      CHECK(Choice(kF32, weights, kF32, rows) == LinearKernel::kGemv);
    }
  }
  CHECK(Choice(kF16, kBF16, kF32, 1) == LinearKernel::kPlain);
  CHECK(Choice(kF16, kBF16, kF32, 100) == LinearKernel::kPlain);
  CHECK(Choice(kF32, kF16, kBF16, 100) == LinearKernel::kGemv);
}

TEST_CASE("groups of int8 and int4 weights must fill what a kernel loads at once") {
  for (const DType codes : {kI8, kI4}) {
    CHECK(Choice(kF32, codes, kBF16, 1, 90, 16) == LinearKernel::kGemv);
    CHECK(Choice(kF32, codes, kBF16, 1, 90, 24) == LinearKernel::kPlain);
    CHECK(Choice(kF32, codes, kBF16, 100, 90, 32) == LinearKernel::kTensorCores);
    CHECK(Choice(kF32, codes, kBF16, 100, 90, 16) == LinearKernel::kGemv);
    CHECK(Choice(kF32, codes, kBF16, 100, 90, 24) == LinearKernel::kPlain);
  }
}

TEST_CASE("Turing multiplies float16 alone") {
  CHECK(Choice(kF32, kF16, kF16, 100, 75) == LinearKernel::kTensorCores);
  CHECK(Choice(kF32, kI8, kF16, 100, 75) == LinearKernel::kTensorCores);
  CHECK(Choice(kF32, kBF16, kBF16, 100, 75) == LinearKernel::kGemv);
  CHECK(Choice(kF32, kBF16, kBF16, 100, 80) == LinearKernel::kTensorCores);
  CHECK(TensorCoreType({.in = kF32, .weights = kI8, .products = kF16, .group_size = 64}, 75) ==
        kF16);
}

TEST_CASE("experts choose by the rows that each has on average") {
  CHECK(Choice(kF32, kBF16, kBF16, 64, 90, 128, 8) == LinearKernel::kGemv);
  CHECK(Choice(kF32, kBF16, kBF16, 65, 90, 128, 8) == LinearKernel::kTensorCores);
  CHECK(GemvRowsAtOnce(3, 8) == 1);
  CHECK(GemvRowsAtOnce(17, 8) == 4);
  CHECK(GemvRowsAtOnce(1000, 8) == kMaxGemvRows);
}

TEST_CASE("shapes are legal, cover the outputs, and fit every GPU's shared memory") {
  constexpr int64_t kMinSharedBytes = 64 << 10;  // capability 7.5
  for (const int64_t rows : {1, 2, 5, 16, 17, 100, 2048, 100000}) {
    for (const int64_t columns : {1, 15, 128, 129, 4096, 260000}) {
      for (const int64_t experts : {1, 8, 128}) {
        for (const int multiprocessors : {1, 40, 132}) {
          CAPTURE(rows, columns, experts, multiprocessors);
          const int at_once = GemvRowsAtOnce(rows, experts);
          const LaunchShape gemv = GemvShape(at_once, columns, experts);
          CHECK(gemv.IsLegal());
          CHECK(gemv.blocks.x * kGemvWarps * GemvColumns(at_once) >= columns);
          CHECK(gemv.blocks.y == experts);

          const GemmTile tile = ChooseGemmTile(rows, columns, experts, multiprocessors);
          const LaunchShape gemm = GemmShape(tile, rows, columns, experts, kBF16);
          CHECK(gemm.IsLegal());
          CHECK(gemm.blocks.y * kGemmColumns >= columns);
          CHECK(gemm.threads.count() == 128 * tile.row_warps);
          CHECK(gemm.shared_bytes <= kMinSharedBytes);
          // The worst split: all experts but one have a row in a tile of their own.
          const int64_t ones = std::min(rows, experts) - 1;
          const int64_t rest = (rows - ones + tile.rows() - 1) / tile.rows();
          CHECK(gemm.blocks.x >= ones + rest);
          const LaunchShape int8 = GemmShape(tile, rows, columns, experts, kI8);
          CHECK(int8.shared_bytes < gemm.shared_bytes);
          CHECK(GemmShape(tile, rows, columns, experts, kI4).shared_bytes < int8.shared_bytes);
        }
      }
    }
  }
}

TEST_CASE("tiles are as large as keeps half of the multiprocessors busy") {
  CHECK(ChooseGemmTile(2048, 4096, 1, 132).rows() == 128);
  CHECK(ChooseGemmTile(128, 4096, 1, 132).rows() == 32);
  CHECK(ChooseGemmTile(128, 4096, 1, 16).rows() == 128);
  CHECK(ChooseGemmTile(128, 100000, 1, 132).rows() == 128);
  CHECK(ChooseGemmTile(16, 4096, 1, 132).rows() == 16);
  CHECK(ChooseGemmTile(40, 100000, 1, 132).rows() == 64);
  CHECK(ChooseGemmTile(20, 100000, 1, 132).rows() == 32);
}

}  // namespace
}  // namespace tessera::kernels::cuda
