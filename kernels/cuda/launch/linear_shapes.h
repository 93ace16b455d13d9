// Which kernel computes a linear (kernels/cuda/linear, or the plain one), and its launch shape:
// pure functions of types, extents and the GPU.
//
// How a sum runs depends on the kernel and on the depth alone, not on these shapes: so a row has
// the same bits in every batch that the same kernel computes. Extents are 1 or more. Thread-safe.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch/launch_shape.h"
#include "kernels/dtype.h"

namespace tessera::kernels::cuda {

struct LinearProblem {
  DType in = DType::kF32;
  DType weights = DType::kF32;
  DType products = DType::kF32;  // what f32 activations may be rounded to: LinearArgs::products
  int64_t group_size = 0;        // of i8, i4: inputs that share a scale
  int64_t rows = 0;              // of all experts together
  int64_t experts = 1;
};

enum class LinearKernel : uint8_t { kPlain, kGemv, kTensorCores };

// For logs and tests: "plain", "GEMV", "tensor cores".
const char* Name(LinearKernel kernel);

// The type that tensor cores of this GPU multiply for the problem; f32: they cannot.
DType TensorCoreType(const LinearProblem& problem, int capability);
// f32 weights have the plain kernel, whose sums run in one order; few rows GEMV, which is as exact.
// Many rows have tensor cores; where nothing may be rounded for these, the kernel of few rows, so
// that a row keeps its bits.
LinearKernel ChooseLinear(const LinearProblem& problem, int capability);

// ---- GEMV

inline constexpr int kMaxGemvRows = 8;
inline constexpr int kGemvWarps = 4;
// Columns that a warp sums while it reads the inputs once.
constexpr int GemvColumns(int rows_at_once) { return rows_at_once >= 4 ? 4 : 2; }
// Rows that share one read of the weights: 1, 2, 4 or 8. An expert with more reads them again.
int GemvRowsAtOnce(int64_t rows, int64_t experts);
// Blocks (groups of columns, experts).
LaunchShape GemvShape(int rows_at_once, int64_t columns, int64_t experts);

// ---- GEMM on tensor cores

inline constexpr int kGemmColumns = 128;     // of a block: four warps beside each other
inline constexpr int kGemmDepth = 32;        // inputs of a stage
inline constexpr int kGemmStages = 3;        // that copies run ahead
inline constexpr int kGemmRowBytes = 64;     // of a stage, of 16-bit inputs
inline constexpr int kGemmCodeBytes = 32;    // of a stage, of int8 weights
inline constexpr int kGemmNibbleBytes = 16;  // of a stage, of int4 weights

// Rows of a block: row_warps below each other, each with row_tiles fragments of 16.
struct GemmTile {
  int row_tiles = 1;
  int row_warps = 1;
  constexpr int rows() const { return 16 * row_tiles * row_warps; }
};

// 16, 32, 64 or 128 rows: as many as there are, and fewer where the GPU would stand half idle.
GemmTile ChooseGemmTile(int64_t rows, int64_t columns, int64_t experts, int multiprocessors);
// Blocks (tiles of rows, columns). How many tiles the experts' rows make is known on the device
// alone: there are enough for any split of them, and those beyond end at once.
LaunchShape GemmShape(const GemmTile& tile, int64_t rows, int64_t columns, int64_t experts,
                      DType weights);

}  // namespace tessera::kernels::cuda
