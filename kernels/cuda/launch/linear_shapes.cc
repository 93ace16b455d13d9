#include "kernels/cuda/launch/linear_shapes.h"

#include <algorithm>
#include <bit>

namespace tessera::kernels::cuda {
namespace {

// Inputs that must share one scale: those of a lane's load (16 bytes of int8, or 8 of int4) in the
// GEMV, those of a stage in the GEMM.
constexpr int64_t kGemvGroup = 16;
constexpr int64_t kGemmGroup = kGemmDepth;
constexpr int kAmpere = 80;

int64_t Ceil(int64_t value, int64_t step) { return (value + step - 1) / step; }

bool IsHalf(DType type) { return type == DType::kF16 || type == DType::kBF16; }

// Weights of 16 bits must be of the type that they are multiplied in; int8 and int4 become any.
bool Fits(const LinearProblem& problem, DType type, int64_t group) {
  const bool codes = problem.weights == DType::kI8 || problem.weights == DType::kI4;
  if (codes) return problem.group_size % group == 0;
  return IsHalf(problem.weights) && (type == problem.weights || type == DType::kF32);
}

int64_t RowsOfExpert(int64_t rows, int64_t experts) { return Ceil(rows, experts); }

}  // namespace

const char* Name(LinearKernel kernel) {
  switch (kernel) {
    case LinearKernel::kPlain: return "plain";
    case LinearKernel::kGemv: return "GEMV";
    case LinearKernel::kTensorCores: return "tensor cores";
  }
  return "unknown";
}

DType TensorCoreType(const LinearProblem& problem, int capability) {
  const DType type = problem.in == DType::kF32 ? problem.products : problem.in;
  const bool there = type == DType::kF16 || (type == DType::kBF16 && capability >= kAmpere);
  return there && Fits(problem, type, kGemmGroup) ? type : DType::kF32;
}

LinearKernel ChooseLinear(const LinearProblem& problem, int capability) {
  const bool few = RowsOfExpert(problem.rows, problem.experts) <= kMaxGemvRows;
  const bool tensor_cores = TensorCoreType(problem, capability) != DType::kF32;
  if (tensor_cores && !few) return LinearKernel::kTensorCores;
  return Fits(problem, problem.in, kGemvGroup) ? LinearKernel::kGemv
         : tensor_cores                        ? LinearKernel::kTensorCores
                                               : LinearKernel::kPlain;
}

int GemvRowsAtOnce(int64_t rows, int64_t experts) {
  const auto rounded = std::bit_ceil(static_cast<uint64_t>(RowsOfExpert(rows, experts)));
  return static_cast<int>(std::min<uint64_t>(rounded, kMaxGemvRows));
}

LaunchShape GemvShape(int rows_at_once, int64_t columns, int64_t experts) {
  return {.blocks = {Ceil(columns, int64_t{kGemvWarps} * GemvColumns(rows_at_once)), experts},
          .threads = {kWarpThreads, kGemvWarps}};
}

GemmTile ChooseGemmTile(int64_t rows, int64_t columns, int64_t experts, int multiprocessors) {
  constexpr GemmTile kTiles[] = {{4, 2}, {4, 1}, {2, 1}, {1, 1}};
  const int64_t of_expert = RowsOfExpert(rows, experts);
  const int64_t wide = Ceil(columns, kGemmColumns) * experts;
  for (const GemmTile& tile : kTiles) {
    const bool half_empty = 2 * of_expert <= tile.rows();
    const bool idle = 2 * Ceil(of_expert, tile.rows()) * wide < multiprocessors;
    if (!half_empty && !idle) return tile;
  }
  return kTiles[3];
}

LaunchShape GemmShape(const GemmTile& tile, int64_t rows, int64_t columns, int64_t experts,
                      DType weights) {
  const int64_t tiles = experts == 1 ? Ceil(rows, tile.rows()) : rows / tile.rows() + experts;
  const int64_t weight_bytes = weights == DType::kI4   ? kGemmNibbleBytes
                               : weights == DType::kI8 ? kGemmCodeBytes
                                                       : kGemmRowBytes;
  return {
      .blocks = {tiles, Ceil(columns, kGemmColumns)},
      .threads = {kWarpThreads, int64_t{4} * tile.row_warps},
      .shared_bytes = kGemmStages * (tile.rows() * kGemmRowBytes + kGemmColumns * weight_bytes)};
}

}  // namespace tessera::kernels::cuda
