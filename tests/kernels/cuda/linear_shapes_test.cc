// Which kernel serves which linear, and shapes of launches as numbers.
#include "kernels/cuda/launch/linear_shapes.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "kernels/cuda/launch/gpu_limits.h"

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
      CHECK(Choice(in, weights, half, MaxGemvRows(weights)) == LinearKernel::kGemv);
      CHECK(Choice(in, weights, half, MaxGemvRows(weights) + 1) == LinearKernel::kTensorCores);
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

TEST_CASE("groups of int8 and int4 weights must be whole windows of tensor cores") {
  for (const DType codes : {kI8, kI4}) {
    for (const int64_t group_size : {32, 96, 128}) {
      CHECK(Choice(kF32, codes, kBF16, 1, 90, group_size) == LinearKernel::kGemv);
      CHECK(Choice(kF32, codes, kBF16, 100, 90, group_size) == LinearKernel::kTensorCores);
    }
    for (const int64_t group_size : {16, 24, 48}) {
      CHECK(Choice(kF32, codes, kBF16, 1, 90, group_size) == LinearKernel::kPlain);
      CHECK(Choice(kF32, codes, kBF16, 100, 90, group_size) == LinearKernel::kPlain);
    }
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
  for (const DType weights : {kBF16, kI8}) {
    const int64_t rows = 8 * MaxGemvRows(weights);
    CHECK(Choice(kF32, weights, kBF16, rows, 90, 128, 8) == LinearKernel::kGemv);
    CHECK(Choice(kF32, weights, kBF16, rows + 1, 90, 128, 8) == LinearKernel::kTensorCores);
  }
  CHECK(GemvRowsAtOnce(3, 8, kBF16) == 1);
  CHECK(GemvRowsAtOnce(9, 8, kBF16) == 2);
  CHECK(GemvRowsAtOnce(17, 8, kBF16) == 4);
  CHECK(GemvRowsAtOnce(1000, 8, kBF16) == 4);
  CHECK(GemvRowsAtOnce(1000, 8, kI8) == 2);
}

// On GPUs with much and little shared memory.
void CheckGemmShape(GemmProblem problem) {
  for (const auto& [capability, shared_bytes] :
       {std::pair{75, 64 << 10}, {80, 163 << 10}, {89, 99 << 10}, {90, 227 << 10}}) {
    problem.capability = capability;
    const GemmTile tile = ChooseGemmTile(problem);
    const int stages = GemmStages(tile, problem);
    CHECK((stages >= 2 && stages <= 6));
    const LaunchShape shape = GemmShape(tile, stages, problem, 3);
    CAPTURE(capability, Name(problem.weights), tile.rows());
    CHECK(shape.IsLegal());
    CHECK(shape.blocks.y * kGemmColumns >= problem.columns);
    CHECK(shape.blocks.z == 3);
    CHECK(shape.threads.count() == 128 * tile.row_warps);
    CHECK(shape.shared_bytes <= shared_bytes);
    // The worst split: all experts but one have a row in a tile of their own.
    const int64_t ones = std::min(problem.rows, problem.experts) - 1;
    const int64_t rest = (problem.rows - ones + tile.rows() - 1) / tile.rows();
    CHECK(shape.blocks.x >= ones + rest);
  }
}

TEST_CASE("shapes are legal, cover the outputs, and fit every GPU's shared memory") {
  for (const int64_t rows : {1, 2, 5, 16, 17, 100, 2048, 100000}) {
    for (const int64_t columns : {1, 15, 128, 129, 4096, 260000}) {
      for (const int64_t experts : {1, 8, 128}) {
        for (const int multiprocessors : {1, 40, 132}) {
          CAPTURE(rows, columns, experts, multiprocessors);
          for (const DType weights : {kBF16, kI8, kI4}) {
            const LaunchShape gemv = GemvShape(rows, columns, experts, weights);
            const int at_once = GemvRowsAtOnce(rows, experts, weights);
            CHECK(gemv.IsLegal());
            CHECK(gemv.blocks.x * GemvColumns(at_once, WeightBits(weights)) >= columns);
            CHECK(gemv.blocks.y == std::min(rows, experts));
            CheckGemmShape({.rows = rows,
                            .columns = columns,
                            .experts = experts,
                            .weights = weights,
                            .multiprocessors = multiprocessors});
          }
        }
      }
    }
  }
}

TEST_CASE("tiles are as large as keeps half of the multiprocessors busy") {
  const auto rows = [](int64_t rows, int64_t columns, int multiprocessors = 132,
                       int capability = 90) {
    return ChooseGemmTile({.rows = rows,
                           .columns = columns,
                           .weights = kI8,
                           .capability = capability,
                           .multiprocessors = multiprocessors})
        .rows();
  };
  CHECK(rows(2048, 4096) == 128);
  CHECK(rows(128, 4096) == 32);
  CHECK(rows(128, 4096, 16) == 128);
  CHECK(rows(128, 100000) == 128);
  CHECK(rows(2048, 4096, 40, 75) == 64);  // two stages must fit
  // Few rows are in one tile: weights pass once.
  CHECK(rows(9, 128) == 16);
  CHECK(rows(20, 128) == 32);
  CHECK(rows(40, 128) == 64);
}

TEST_CASE("stages leave room for a second block where three of them do") {
  const auto stages = [](int capability, int64_t rows, DType weights) {
    const GemmProblem problem = {.rows = rows,
                                 .columns = 100000,
                                 .weights = weights,
                                 .capability = capability,
                                 .multiprocessors = 132};
    return GemmStages(ChooseGemmTile(problem), problem);
  };
  CHECK(stages(90, 16, kI8) == 5);    // 20 KiB each
  CHECK(stages(90, 16, kI4) == 6);    // 12 KiB
  CHECK(stages(90, 64, kI8) == 3);    // 32 KiB
  CHECK(stages(90, 4096, kI8) == 4);  // 48 KiB: one block
  CHECK(stages(80, 16, kI8) == 4);
  CHECK(stages(89, 16, kI8) == 4);
  CHECK(stages(89, 4096, kI8) == 2);
  CHECK(stages(75, 16, kI8) == 3);
}

TEST_CASE("an expert may be hot where several rows meet each on average") {
  const LinearProblem many = {.weights = DType::kBF16, .rows = 400, .experts = 128};
  CHECK(MayHaveHotExperts(many, 400));
  CHECK(MayHaveHotExperts(many, 50));
  CHECK_FALSE(MayHaveHotExperts(many, 16));  // so many tokens: no expert has more
  const LinearProblem few = {.weights = DType::kI8, .rows = 64, .experts = 128};
  CHECK_FALSE(MayHaveHotExperts(few, 64));
}

TEST_CASE("codes are widened for many rows on GPUs of data centres, by whole tiles of columns") {
  const auto widens = [](DType weights, int64_t rows, int64_t experts, int capability) {
    return WidensCodes({.weights = weights, .rows = rows, .experts = experts}, capability);
  };
  CHECK(widens(DType::kI4, kMinWidenedRows, 1, 90));
  CHECK(widens(DType::kI8, 2048, 1, 80));
  CHECK_FALSE(widens(DType::kI8, kMinWidenedRows - 1, 1, 90));
  CHECK_FALSE(widens(DType::kI8, 2048, 8, 90));
  CHECK_FALSE(widens(DType::kBF16, 2048, 1, 90));
  for (const int capability : {75, 86, 89, 120}) {
    CHECK_FALSE(widens(DType::kI8, 2048, 1, capability));
  }
  for (const int64_t columns : {1, 128, 129, 4096, 28672}) {
    for (const int64_t depth : {64, 4096, 28672}) {
      const int64_t at_once = WidenedColumns(columns, depth, int64_t{32} << 20);
      CHECK(at_once % kGemmColumns == 0);
      CHECK((at_once == kGemmColumns || 2 * at_once * depth <= int64_t{32} << 20));
    }
  }
}

TEST_CASE("the depth is split where columns make few blocks") {
  for (const DType weights : {kBF16, kI8, kI4}) {
    for (const int64_t columns : {1, 129, 4096, 6144, 28672, 128256}) {
      for (const int64_t depth : {1, 512, 513, 4096, 14336}) {
        CAPTURE(Name(weights), columns, depth);
        const GemmSplit split = ChooseGemmSplit(columns, depth, weights);
        const int64_t of_part = split.part_stages * GemmDepth(WeightBits(weights));
        CHECK(split.parts * of_part >= depth);
        CHECK((split.parts - 1) * of_part < depth);  // the last one has something to sum
        CHECK((GemmPartBytes(split, 3, columns) == 0) == (split.parts == 1));
        CHECK(GemmPartBytes(split, 3, columns) <= GemmPartBytes(split, 4, columns));
        const int64_t tiles = 4 * ((columns + kGemmColumns - 1) / kGemmColumns);
        CHECK((split.parts == 1 || tiles <= kMaxSplitTiles));
      }
    }
  }
  CHECK(ChooseGemmSplit(4096, 4096, kI8).parts == 8);
  CHECK(ChooseGemmSplit(28672, 4096, kI8).parts == 1);
  CHECK(ChooseGemmSplit(4096, 500, kI8).parts == 1);
  CHECK(GemmPartBytes({.parts = 8, .part_stages = 4}, 16, 4095) == 8 * 16 * 4096 * 4);
}

TEST_CASE("choices of a GEMM: the usual one first, each fits, none comes twice") {
  for (const DType weights : {kBF16, kI8, kI4}) {
    for (const int capability : {75, 80, 86, 90, 120}) {
      for (const int64_t rows : {8, 16, 33, 64, 128, 2048}) {
        CAPTURE(Name(weights), capability, rows);
        const GemmProblem problem = {.rows = rows,
                                     .columns = 6144,
                                     .weights = weights,
                                     .capability = capability,
                                     .multiprocessors = 132};
        const std::vector<GemmChoice> choices = GemmChoices(problem, 128);
        CHECK(choices.size() >= 2);
        CHECK(choices.size() <= 12);
        std::set<std::pair<int, int>> seen;
        for (const GemmChoice& choice : choices) {
          const GemmTile tile = TileOf(choice, problem, 128);
          const int stages = StagesOf(choice, tile, problem);
          CHECK(seen.emplace(tile.rows(), stages).second);
          CHECK(stages >= 2);
          const LaunchShape shape = GemmShape(tile, stages, problem, 1);
          CHECK(shape.shared_bytes <= BlockSharedBytes(capability));
        }
      }
    }
  }
}

TEST_CASE("weights without scales have the tiles of many rows, whatever their groups would be") {
  GemmProblem problem = {
      .rows = 2048, .columns = 28672, .weights = kBF16, .capability = 90, .multiprocessors = 132};
  CHECK(TileOf({}, problem, 128).rows() == 128);
  problem.weights = kI8;
  CHECK(TileOf({}, problem, 128).rows() == 128);
  CHECK(TileOf({}, problem, 96).rows() == 32);  // a stage holds no such group whole
}

}  // namespace
}  // namespace tessera::kernels::cuda
