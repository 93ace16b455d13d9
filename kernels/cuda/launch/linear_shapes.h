// Which kernel computes a linear (kernels/cuda/linear, or the plain one), and its launch shape:
// pure functions of types, extents and the GPU.
//
// How a sum runs depends on the kernel, the columns and the depth alone: so a row has the same bits
// in every batch that the same kernel computes. Tensor cores count as two: with split depth (up to
// kMaxSplitRows rows, without experts) and without it. Extents are 1 or more. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/launch/launch_shape.h"
#include "kernels/dtype.h"

namespace tessera::kernels::cuda {

struct LinearProblem {
  DType in = DType::kF32;
  DType weights = DType::kF32;
  DType products = DType::kF32;  // what f32 activations may be rounded to: LinearArgs::products
  int64_t group_size = 0;        // of codes: inputs that share a scale
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

// float8, int8 and int4.
constexpr bool IsCodes(DType weights) {
  return weights == DType::kF8 || weights == DType::kI8 || weights == DType::kI4;
}
// Bits of the weights that GEMV and GEMM take.
constexpr int WeightBits(DType weights) {
  return weights == DType::kI4 ? 4 : IsCodes(weights) ? 8 : 16;
}

// ---- GEMV

// Rows that GEMV computes where tensor cores might: with more its sums take longer than the bytes
// of the weights, which are fewer with codes.
constexpr int MaxGemvRows(DType weights) { return IsCodes(weights) ? 2 : 4; }
inline constexpr int kGemvWarps = 4;  // of a block; they share the depth
// Where experts have few rows on average, rows of one that GEMV computes: it reads the weights
// again for each few of them. Experts with more are tensor cores'.
constexpr int MaxColdRows(DType weights) { return 4 * MaxGemvRows(weights); }
// Whether a grouped product for GEMV may have such an expert. `sources`: rows that are read, of
// which an expert has each once at most.
bool MayHaveHotExperts(const LinearProblem& problem, int64_t sources);
// Columns of a block, which meet inputs that are read once: 8 of int4, of which a lane loads half
// as many bytes, where registers are left for it.
constexpr int GemvColumns(int rows_at_once, int weight_bits) {
  return weight_bits == 4 && rows_at_once <= 2 ? 8 : 4;
}
// Rows that share one read of the weights: 1, 2 or 4. An expert with more
// reads them again.
int GemvRowsAtOnce(int64_t rows, int64_t experts, DType weights);
// Blocks (groups of columns, experts that have rows: no more than there are rows).
LaunchShape GemvShape(int64_t rows, int64_t columns, int64_t experts, DType weights);

// ---- GEMM on tensor cores

inline constexpr int kGemmColumns = 128;  // of a block: four warps beside each other
// Groups of codes are a multiple of so many inputs, or the plain kernel has them.
inline constexpr int kGemmWindow = 32;
// Products of so many rows and fewer may split their depth over blocks.
inline constexpr int64_t kMaxSplitRows = 64;
// Tiles of such a product, where it does split it.
inline constexpr int64_t kMaxSplitTiles = 1024;

// Inputs of a stage of copies.
constexpr int GemmDepth(int weight_bits) { return weight_bits == 16 ? 64 : 128; }
constexpr int GemmStageBytes(int rows, int weight_bits) {
  return GemmDepth(weight_bits) * (16 * rows + weight_bits * kGemmColumns) / 8;
}

// Rows of a block: row_warps below each other, each with row_tiles fragments of 16.
struct GemmTile {
  int row_tiles = 1;
  int row_warps = 1;
  constexpr int rows() const { return 16 * row_tiles * row_warps; }
};

// Products of codes with so many rows and more, without experts, are cuBLASLt's where it is there:
// the codes become 16-bit weights first, some columns at a time, which stay in the cache. On GPUs
// whose tensor cores our GEMM leaves half idle: those of data centres.
inline constexpr int64_t kMinWidenedRows = 256;
bool WidensCodes(const LinearProblem& problem, int capability);
// Columns at a time: whole tiles, all alike but the last ones, in `bytes` if possible.
int64_t WidenedColumns(int64_t columns, int64_t depth, int64_t bytes);

// Whether a warp with so many fragments of rows takes groups of codes whole, so that a stage must
// be a multiple of them (LaunchGemm takes a smaller tile where it is not). With fewer rows there
// are registers for the sums of a group beside those of all.
constexpr bool HasWholeGroups(int row_tiles) { return row_tiles >= 4; }

struct GemmProblem {
  int64_t rows = 0;  // of all experts together
  int64_t columns = 0, experts = 1;
  DType weights = DType::kBF16;
  int capability = 75, multiprocessors = 1;  // of the GPU
};

// 16, 32, 64 or 128 rows. Up to kMaxSplitRows without experts: all rows, so that weights pass once.
// Else as many as there are, and fewer where the GPU would stand half idle or two stages would not
// fit in its shared memory.
GemmTile ChooseGemmTile(const GemmProblem& problem);
// Stages that copies run ahead in, 2 to 6: as many as leave room for a second block.
int GemmStages(const GemmTile& tile, const GemmProblem& problem);

// Another way of the same sums, whose bits are the same, than the functions above choose; zeros:
// what they choose.
struct GemmChoice {
  int8_t row_tiles = 0, row_warps = 0;  // of the tile
  int8_t stages = 0;
};
// What a GPU may be faster with, that of the functions above first; `rows` of the problem or fewer,
// down to half of it, have any of them. `group_size`: of codes.
std::vector<GemmChoice> GemmChoices(const GemmProblem& problem, int64_t group_size);
// The tile of a launch, and its stages, by `choice`. A tile that takes groups whole, which these
// groups do not let it, becomes a smaller one.
GemmTile TileOf(const GemmChoice& choice, const GemmProblem& problem, int64_t group_size);
int StagesOf(const GemmChoice& choice, const GemmTile& tile, const GemmProblem& problem);

// Parts of the depth that blocks sum for themselves where columns alone make too few blocks. They
// depend on the columns, the depth and the weights alone, so that rows keep their bits in every
// batch of up to kMaxSplitRows and on every GPU.
struct GemmSplit {
  int64_t parts = 1;
  int64_t part_stages = 0;  // of each but the last one
};
GemmSplit ChooseGemmSplit(int64_t columns, int64_t depth, DType weights);
// Bytes of the sums of all parts, f32 [parts, rows, columns rounded up to kGemmColumns]; 0 for one
// part.
int64_t GemmPartBytes(const GemmSplit& split, int64_t rows, int64_t columns);

// Blocks (tiles of rows, columns, parts). How many tiles the experts' rows make is known on the
// device alone: there are enough for any split of them, and those beyond end at once.
LaunchShape GemmShape(const GemmTile& tile, int stages, const GemmProblem& problem, int64_t parts);

}  // namespace tessera::kernels::cuda
