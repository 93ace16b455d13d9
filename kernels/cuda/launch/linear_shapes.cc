#include "kernels/cuda/launch/linear_shapes.h"

#include <algorithm>
#include <bit>

#include "kernels/cuda/launch/gpu_limits.h"

namespace tessera::kernels::cuda {
namespace {

constexpr int64_t kGroup = kGemmWindow;  // inputs that must share one scale

// A GEMM with split depth has enough blocks for large GPUs, and each block sums so many stages at
// least.
constexpr int64_t kSplitBlocks = 256, kMinPartStages = 4;
constexpr int kMinStages = 2, kEnoughStages = 3, kMaxStages = 6;

int64_t Ceil(int64_t value, int64_t step) { return (value + step - 1) / step; }

bool IsHalf(DType type) { return type == DType::kF16 || type == DType::kBF16; }

// Weights of 16 bits must be of the type that they are multiplied in; codes become any.
bool Fits(const LinearProblem& problem, DType type) {
  if (IsCodes(problem.weights)) return problem.group_size % kGroup == 0;
  return IsHalf(problem.weights) && (type == problem.weights || type == DType::kF32);
}

constexpr GemmTile kTiles[] = {{4, 2}, {4, 1}, {2, 1}, {1, 1}};

bool HasWhole(const GemmTile& tile, const GemmProblem& problem, int64_t group_size) {
  return !HasWholeGroups(tile.row_tiles) || !IsCodes(problem.weights) || group_size < 1 ||
         GemmDepth(WeightBits(problem.weights)) % group_size == 0;
}

// Stages that a block has room for, with so many blocks on a multiprocessor.
int64_t StagesInShared(const GemmTile& tile, const GemmProblem& problem, int64_t blocks = 1) {
  return BlockSharedBytes(problem.capability, blocks) /
         GemmStageBytes(tile.rows(), WeightBits(problem.weights));
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
  return there && Fits(problem, type) ? type : DType::kF32;
}

LinearKernel ChooseLinear(const LinearProblem& problem, int capability) {
  const bool few = RowsOfExpert(problem.rows, problem.experts) <= MaxGemvRows(problem.weights);
  const bool tensor_cores = TensorCoreType(problem, capability) != DType::kF32;
  if (tensor_cores && !few) return LinearKernel::kTensorCores;
  return Fits(problem, problem.in) ? LinearKernel::kGemv
         : tensor_cores            ? LinearKernel::kTensorCores
                                   : LinearKernel::kPlain;
}

bool MayHaveHotExperts(const LinearProblem& problem, int64_t sources) {
  return std::min(problem.rows, sources) > MaxColdRows(problem.weights) &&
         problem.rows > problem.experts;
}

int GemvRowsAtOnce(int64_t rows, int64_t experts, DType weights) {
  const auto rounded = std::bit_ceil(static_cast<uint64_t>(RowsOfExpert(rows, experts)));
  return static_cast<int>(std::min<uint64_t>(rounded, MaxGemvRows(weights)));
}

LaunchShape GemvShape(int64_t rows, int64_t columns, int64_t experts, DType weights) {
  const int at_once = GemvRowsAtOnce(rows, experts, weights);
  const int64_t of_block = GemvColumns(at_once, WeightBits(weights));
  return {.blocks = {Ceil(columns, of_block), std::min(rows, experts)},
          .threads = {kWarpThreads, kGemvWarps}};
}

GemmTile ChooseGemmTile(const GemmProblem& problem) {
  const int64_t of_expert = RowsOfExpert(problem.rows, problem.experts);
  const int64_t wide = Ceil(problem.columns, kGemmColumns) * problem.experts;
  const bool may_split = problem.experts == 1 && problem.rows <= kMaxSplitRows;
  const int bits = WeightBits(problem.weights);
  for (const GemmTile& tile : kTiles) {
    const bool fits =
        kMinStages * GemmStageBytes(tile.rows(), bits) <= BlockSharedBytes(problem.capability);
    const bool half_empty = 2 * of_expert <= tile.rows();
    const bool idle =
        !may_split && 2 * Ceil(of_expert, tile.rows()) * wide < problem.multiprocessors;
    if (fits && !half_empty && !idle) return tile;
  }
  return kTiles[3];
}

bool WidensCodes(const LinearProblem& problem, int capability) {
  const bool data_centre = capability == 80 || (capability >= 90 && capability < 120);
  return data_centre && IsCodes(problem.weights) && problem.experts == 1 &&
         problem.rows >= kMinWidenedRows;
}

int64_t WidenedColumns(int64_t columns, int64_t depth, int64_t bytes) {
  const int64_t most =
      std::max<int64_t>(kGemmColumns, bytes / (2 * depth) / kGemmColumns * kGemmColumns);
  const int64_t times = Ceil(columns, most);
  return Ceil(Ceil(columns, times), kGemmColumns) * kGemmColumns;
}

int GemmStages(const GemmTile& tile, const GemmProblem& problem) {
  const int64_t of_two = StagesInShared(tile, problem, 2);
  const int64_t alone = StagesInShared(tile, problem);
  const int64_t stages = of_two >= kEnoughStages ? of_two : std::min<int64_t>(alone, 4);
  return static_cast<int>(std::clamp<int64_t>(stages, kMinStages, kMaxStages));
}

GemmTile TileOf(const GemmChoice& choice, const GemmProblem& problem, int64_t group_size) {
  GemmTile tile = {choice.row_tiles, choice.row_warps};
  if (choice.row_tiles == 0) tile = ChooseGemmTile(problem);
  if (!HasWhole(tile, problem, group_size)) tile = {.row_tiles = 2};
  return tile;
}

int StagesOf(const GemmChoice& choice, const GemmTile& tile, const GemmProblem& problem) {
  return choice.stages > 0 ? choice.stages : GemmStages(tile, problem);
}

std::vector<GemmChoice> GemmChoices(const GemmProblem& problem, int64_t group_size) {
  std::vector<GemmChoice> choices(1);
  const GemmTile usual = TileOf({}, problem, group_size);
  for (const GemmTile& tile : kTiles) {
    // A launch of half the rows has half the tiles of rows at least, and so room for arrivals.
    const int64_t tiles = Ceil(problem.rows, tile.rows()) * Ceil(problem.columns, kGemmColumns);
    const bool splits = problem.rows <= kMaxSplitRows && problem.experts == 1;
    const bool half_empty = 2 * RowsOfExpert(problem.rows, problem.experts) <= tile.rows();
    const bool smallest = tile.rows() == kTiles[3].rows();
    if ((half_empty && !smallest) || !HasWhole(tile, problem, group_size)) continue;
    if (splits && tiles > kMaxSplitTiles) continue;
    const int64_t most = std::min<int64_t>(kMaxStages, StagesInShared(tile, problem));
    const int stages = GemmStages(tile, problem);
    for (int64_t count = std::max(kMinStages, stages - 1);
         count <= std::min<int64_t>(most, stages + 1); ++count) {
      if (tile.rows() == usual.rows() && count == stages) continue;  // the first
      choices.push_back({static_cast<int8_t>(tile.row_tiles), static_cast<int8_t>(tile.row_warps),
                         static_cast<int8_t>(count)});
    }
  }
  return choices;
}

GemmSplit ChooseGemmSplit(int64_t columns, int64_t depth, DType weights) {
  const int64_t stages = Ceil(depth, GemmDepth(WeightBits(weights)));
  const int64_t wanted = std::max<int64_t>(1, kSplitBlocks / Ceil(columns, kGemmColumns));
  const int64_t part_stages = std::max(kMinPartStages, Ceil(stages, wanted));
  return {.parts = Ceil(stages, part_stages), .part_stages = part_stages};
}

int64_t GemmPartBytes(const GemmSplit& split, int64_t rows, int64_t columns) {
  if (split.parts == 1) return 0;
  return split.parts * rows * Ceil(columns, kGemmColumns) * kGemmColumns * 4;
}

LaunchShape GemmShape(const GemmTile& tile, int stages, const GemmProblem& problem, int64_t parts) {
  const int64_t tiles = problem.experts == 1 ? Ceil(problem.rows, tile.rows())
                                             : problem.rows / tile.rows() + problem.experts;
  const int64_t stage_bytes = GemmStageBytes(tile.rows(), WeightBits(problem.weights));
  return {.blocks = {tiles, Ceil(problem.columns, kGemmColumns), parts},
          .threads = {kWarpThreads, int64_t{4} * tile.row_warps},
          .shared_bytes = stages * stage_bytes};
}

}  // namespace tessera::kernels::cuda
