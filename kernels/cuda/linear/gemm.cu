// Many rows on tensor cores. A block computes a tile of outputs; tiles of inputs and weights pass
// through shared memory in stages, which asynchronous copies fill ahead. float8, int8 and int4
// weights stay codes until they are fragments; the sums of a group of them are scaled together, and
// an offset is multiplied by the sum of the group's inputs, so that no weight is rounded. Where
// columns alone make too few blocks for a few rows, blocks also split the depth, and the one that
// ends last adds the sums of a tile, in order. It waits for none: it finds that it is the last.
#include "kernels/cuda/launch/linear_shapes.h"
#include "kernels/cuda/linear/gemm_stage.h"
#include "kernels/cuda/linear/linear_kernels.h"
#include "kernels/cuda/linear/store_sum.h"
#include "kernels/cuda/plain/code_types.h"
#include "kernels/cuda/platform.h"
#include "kernels/cuda/warp_ops.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

struct GemmParams : LinearParams {
  int stages = 2;       // of the ring
  int part_stages = 0;  // of the depth, of each block
  int64_t parts = 1;    // 1: sums go to `out`
};

// An expert's tiles begin with number (rows of those before it) / tile_rows + expert: there are as
// many as it needs, and at times one more. So one lane of a warp finds a tile's expert, by its
// offsets alone.
template <int kTileRows, bool kCodes>
__device__ __forceinline__ RowTile FindTile(const LinearParams& p, int tile, int lane) {
  const bool heads = !kCodes && p.head_rows > 0;
  if (p.expert_offsets == nullptr && !heads) {
    const int rows = static_cast<int>(p.rows);
    return {0, min(tile * kTileRows, rows), rows};
  }
  const auto offset = [&](int expert) {
    return heads ? expert * p.head_rows : p.expert_offsets[expert];
  };
  const int experts = static_cast<int>(p.experts), first_row = offset(0);
#pragma unroll 1
  for (int first = 0; first < experts; first += kWarpThreads) {
    const int expert = min(first + lane, experts - 1);
    const int begin = offset(expert), end = offset(expert + 1);
    const int first_tile = (begin - first_row) / kTileRows + expert;
    const int end_tile = (end - first_row) / kTileRows + expert + 1;
    const uint32_t found = __ballot_sync(kAllLanes, tile >= first_tile && tile < end_tile);
    if (found == 0) continue;
    const int from = __ffs(static_cast<int>(found)) - 1;  // others stand for the same expert
    if (__shfl_sync(kAllLanes, end - begin, from) < p.min_expert_rows) return {0, 0, 0};
    const int row = __shfl_sync(kAllLanes, begin + (tile - first_tile) * kTileRows, from);
    return {min(first + from, experts - 1), row, __shfl_sync(kAllLanes, end, from)};
  }
  return {0, 0, 0};
}

// Until the oldest stage of a ring of 2 to 6 is there, whose newest copies are `stages` - 2 behind.
__device__ __forceinline__ void WaitForStage(int stages) {
  switch (stages) {
    case 2: return WaitCopies<0>();
    case 3: return WaitCopies<1>();
    case 4: return WaitCopies<2>();
    case 5: return WaitCopies<3>();
    default: return WaitCopies<4>();
  }
}

template <int kRowTiles>
using Sums = float[kRowTiles][kFragments][4];
template <int kRowTiles>
using Totals = float[kRowTiles][4];

// A pair of ones: a fragment of them sums inputs.
template <typename T>
constexpr uint32_t kOnePair = std::is_same_v<T, BFloat16> ? 0x3f803f80u : 0x3c003c00u;

// The scales of a lane's columns, group after group. A lane reads ahead the words of columns
// lane / 4 of each fragment, as they stand in memory.
template <typename T, typename W>
struct Groups {
  const char* ahead_at;  // of the lane's first column
  int64_t fragment_bytes;
  int fragments;  // whose column is there
  int left;       // groups that are not read yet
  int group_windows;
  int windows;  // that are left of the group
  uint32_t code_base = CodePairBase<T>();
  uint32_t words[kFragments], ahead[kFragments];
  // With offsets: steps of the same groups, where they are read next (null: there are none), and
  // groups that are left of the block whose pair is read next.
  static constexpr bool kOffsets = std::is_same_v<W, OffsetNibbles>;
  uint32_t steps[kOffsets ? kFragments : 1], steps_ahead[kOffsets ? kFragments : 1];
  const char* steps_at = nullptr;
  int block_groups = 1, left_of_block = 1;

  __device__ __forceinline__ Groups(const LinearParams& p, const char* weights, int64_t column,
                                    int64_t first_input)
      : fragment_bytes(8 * p.weight_row_bytes),
        group_windows(static_cast<int>(p.group_size / kGemmWindow)) {
    const int64_t group = first_input / p.group_size;
    const char* const row = weights + column * p.weight_row_bytes;
    int64_t word = group;
    if constexpr (kOffsets) {
      block_groups = static_cast<int>(p.blocks.size / p.group_size);
      const int64_t from_block = group + p.blocks.skipped / p.group_size;
      word = from_block / block_groups;
      left_of_block = block_groups - static_cast<int>(from_block % block_groups);
      if (p.steps_offset_bytes > 0) steps_at = row + p.steps_offset_bytes + 2 * group;
    }
    ahead_at = row + p.scales_offset_bytes + word * static_cast<int64_t>(sizeof(uint32_t));
    fragments = static_cast<int>(min((p.columns - column + 7) / 8, int64_t{kFragments}));
    left = static_cast<int>((p.depth + p.group_size - 1) / p.group_size - group);
    ReadAhead();
    Advance();
    windows = static_cast<int>((p.group_size - first_input % p.group_size) / kGemmWindow);
  }
  // Words of columns and groups that are not there are 0.
  __device__ __forceinline__ void ReadAhead() {
    const int count = left > 0 ? fragments : 0;
    const char* at = ahead_at;
#pragma unroll
    for (int n = 0; n < kFragments; ++n) {
      ahead[n] = n < count ? *reinterpret_cast<const uint32_t*>(at) : 0;
      at += fragment_bytes;
    }
    if constexpr (kOffsets) {
      at = steps_at;
#pragma unroll
      for (int n = 0; n < kFragments; ++n) {
        steps_ahead[n] = kOneStep;
        if (at == nullptr) continue;
        if (n < count) steps_ahead[n] = *reinterpret_cast<const uint16_t*>(at);
        at += fragment_bytes;
      }
      if (steps_at != nullptr) steps_at += 2;
      if (--left_of_block == 0) {
        left_of_block = block_groups;
        ahead_at += sizeof(uint32_t);
      }
    } else {
      ahead_at += sizeof(uint32_t);
    }
    --left;
  }
  __device__ __forceinline__ void Advance() {
#pragma unroll
    for (int n = 0; n < kFragments; ++n) {
      words[n] = ahead[n];
      if constexpr (kOffsets) steps[n] = steps_ahead[n];
    }
    ReadAhead();
    windows = group_windows;
  }
  __device__ __forceinline__ uint32_t Base(int n) const {
    if constexpr (kOffsets) return NibblePairBase<T>(0);
    return std::is_same_v<W, Nibbles> ? NibblePairBase<T>(words[n]) : code_base;
  }

  // Scale and offset of the lane's column j, 0 or 1, of fragment n in sums. By all lanes.
  __device__ __forceinline__ ScaleOffset OfColumn(int n, int j, int lane) const {
    const int from = (lane % 4 * 2 + j) * 4;
    const uint32_t word = __shfl_sync(kAllLanes, words[n], from);
    if constexpr (kOffsets) {
      return MultiplyPair(word, __shfl_sync(kAllLanes, steps[n], from));
    } else if constexpr (std::is_same_v<W, Nibbles>) {
      return {NibbleScale(word), 0};
    } else {
      return {__uint_as_float(word) * kCodeUnit<W>, 0};
    }
  }

  // sums += scale of the column * parts + its offset * totals, and these become 0. `totals`: of the
  // group's inputs, in the places of a fragment's sums; only with offsets.
  template <int kRowTiles>
  __device__ __forceinline__ void AddScaled(int lane, Sums<kRowTiles>& parts,
                                            Totals<kRowTiles>& totals,
                                            Sums<kRowTiles>& sums) const {
#pragma unroll
    for (int n = 0; n < kFragments; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const ScaleOffset by = OfColumn(n, j, lane);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
          for (int i = j; i < 4; i += 2) {
            sums[m][n][i] += by.scale * parts[m][n][i];
            if constexpr (kOffsets) sums[m][n][i] += by.offset * totals[m][i];
            parts[m][n][i] = 0;
          }
        }
      }
    }
    if constexpr (kOffsets) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (float& total : totals[m]) total = 0;
      }
    }
  }
};

// Adds to `sums` the products with a whole group, `count` windows of a stage from `first_window`
// on. Those of a few rows and columns are finished and scaled before the next ones: what is summed
// has a place in registers once.
template <typename T, typename W, typename Staged, int kRowTiles>
__device__ __forceinline__ void AddGroup(const Groups<T, W>& groups, const unsigned char* stage,
                                         int first_window, int count, int warp_row, int warp_column,
                                         int lane, Sums<kRowTiles>& sums) {
  constexpr bool kOffsets = Groups<T, W>::kOffsets;
  constexpr int kWindows = Staged::kDepth / kGemmWindow, kAtOnce = kFragments / 2;
  constexpr uint32_t kOnes[2] = {kOnePair<T>, kOnePair<T>};
  Totals<kRowTiles> totals = {};
#pragma unroll
  for (int first = 0; first < kFragments; first += kAtOnce) {
    uint32_t b[kWindows][kAtOnce][2][2];
    ScaleOffset by[kAtOnce][2];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
#pragma unroll
      for (int w = 0; w < kWindows; ++w) {
        if (w >= count) break;
        Staged::template LoadCodes<T>(stage, warp_column + 8 * (first + n), first_window + w, lane,
                                      groups.Base(first + n), b[w][n]);
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) by[n][j] = groups.OfColumn(first + n, j, lane);
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      float parts[kAtOnce][4] = {};
#pragma unroll
      for (int step = 0; step < 2 * kWindows; ++step) {
        if (step >= 2 * count) break;
        uint32_t a[4];
        Staged::LoadIn(stage, warp_row + 16 * m, 2 * first_window + step, lane, a);
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) Mma16x8x16<T>(parts[n], a, b[step / 2][n][step % 2]);
        if constexpr (kOffsets) {
          if (first == 0) Mma16x8x16<T>(totals[m], a, kOnes);
        }
      }
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& sum = sums[m][first + n][i];
          sum += by[n][i % 2].scale * parts[n][i];
          if constexpr (kOffsets) sum += by[n][i % 2].offset * totals[m][i];
        }
      }
    }
  }
}

constexpr int kEarlyStages = 2;  // whose weights are read before the earlier launches end

template <typename Staged>
__device__ __forceinline__ void StartEarly(const typename Staged::Copies& copies, int stages,
                                           int first, int end, unsigned char* ring) {
  for (int i = 0; i < min(kEarlyStages, stages - 1) && first + i < end; ++i) {
    copies.StartWeights(first + i, ring + i * Staged::kBytes);
  }
}

// Stages [first, end) of the depth pass through the ring; `multiply` gets each in shared memory.
// Begins behind StartEarly.
template <typename Staged, typename Multiply>
__device__ __forceinline__ void ForEachStage(const typename Staged::Copies& copies, int stages,
                                             int first, int end, unsigned char* ring,
                                             const Multiply& multiply) {
  for (int i = 0; i < stages - 1; ++i) {
    if (first + i < end) {
      unsigned char* const to = ring + i * Staged::kBytes;
      copies.StartInputs(first + i, to);
      if (i >= kEarlyStages) copies.StartWeights(first + i, to);
    }
    CommitCopies();
  }
  int stage = 0, free = stages - 1;
  for (int t = first; t < end; ++t) {
    WaitForStage(stages);
    __syncthreads();  // all have copied this stage, and are through with the one before it
    const int ahead = t + stages - 1;
    if (ahead < end) {
      copies.StartInputs(ahead, ring + free * Staged::kBytes);
      copies.StartWeights(ahead, ring + free * Staged::kBytes);
    }
    CommitCopies();
    multiply(t, ring + stage * Staged::kBytes);
    free = stage;
    stage = stage + 1 == stages ? 0 : stage + 1;
  }
  WaitCopies<0>();
}

template <int kRowTiles, bool kCodes>
__device__ __forceinline__ void StoreTile(const GemmParams& p, const RowTile& rows, int warp_row,
                                          int64_t lane_column, int lane,
                                          const Sums<kRowTiles>& sums) {
  const int64_t width = static_cast<int64_t>(gridDim.y) * kGemmColumns;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = rows.first + warp_row + 16 * m + 8 * half + lane / 4;
      if (row >= rows.end) continue;
      const int64_t place = RowPlace<kCodes>(p, row);
      float* part_row = p.part_sums + (blockIdx.z * p.rows + row) * width;
#pragma unroll
      for (int n = 0; n < kFragments; ++n) {
        const int64_t column = lane_column + 8 * n;
        const float2 both = {sums[m][n][2 * half], sums[m][n][2 * half + 1]};
        if (p.parts > 1) {
          *reinterpret_cast<float2*>(part_row + column) = both;
        } else {
          StoreSum(p, place, column, both.x);
          StoreSum(p, place, column + 1, both.y);
        }
      }
    }
  }
}

// Behind StoreTile: the last of the blocks of a tile to come here sums its parts, for each output
// one after the other. `shared`: memory that nobody uses any more.
template <int kRows, int kThreads>
__device__ __forceinline__ void AddParts(const GemmParams& p, const RowTile& rows,
                                         unsigned char* shared) {
  auto* const earlier = reinterpret_cast<int32_t*>(shared);
  // Computed here again, so that they take no registers before.
  const int thread =
      ComputedHere(static_cast<int>(threadIdx.y)) * kWarpThreads + static_cast<int>(threadIdx.x);
  const int64_t block_column = int64_t{ComputedHere(static_cast<int>(blockIdx.y))} * kGemmColumns;
  __threadfence();  // what this block stored is there for the block that counts it
  __syncthreads();
  if (thread == 0) {
    int32_t* const arrivals = p.arrivals + blockIdx.x * gridDim.y + blockIdx.y;
    earlier[0] = atomicAdd(arrivals, 1);
    if (earlier[0] == p.parts - 1) *arrivals = 0;  // for the next launch
  }
  __syncthreads();
  if (earlier[0] != p.parts - 1) return;  // the whole block
  __threadfence();
  const int64_t width = static_cast<int64_t>(gridDim.y) * kGemmColumns;
  const int64_t part_step = p.rows * width;
  constexpr int kPairs = kGemmColumns / 2;
  const int count = min(rows.end - rows.first, kRows) * kPairs;
#pragma unroll 1
  for (int i = thread; i < count; i += kThreads) {
    const int64_t row = rows.first + i / kPairs, column = block_column + i % kPairs * 2;
    const float* const part = p.part_sums + row * width + column;
    float2 sum = {0, 0};
#pragma unroll 4
    for (int64_t n = 0; n < p.parts; ++n) {
      const float2 of_part = __ldcg(reinterpret_cast<const float2*>(part + n * part_step));
      sum.x += of_part.x;
      sum.y += of_part.y;
    }
    StoreSum(p, row, column, sum.x);
    StoreSum(p, row, column + 1, sum.y);
  }
}

// What a warp sums: its rows and columns in the block's tile, and stages of the depth.
struct WarpPlace {
  int64_t block_column;
  int row, column, lane;
  int first, end;
};

// Sums codes in groups that a stage has whole.
template <typename T, typename W, typename Staged, int kRowTiles>
__device__ __forceinline__ void SumWholeGroups(const GemmParams& p,
                                               const typename Staged::Copies& copies,
                                               const char* weights, const WarpPlace& at,
                                               unsigned char* ring, Sums<kRowTiles>& sums) {
  constexpr int kWindows = Staged::kDepth / kGemmWindow;
  const int windows = static_cast<int>((p.depth + kGemmWindow - 1) / kGemmWindow);
  Groups<T, W> groups(p, weights, at.block_column + at.column + at.lane / 4,
                      int64_t{at.first} * Staged::kDepth);
  const auto multiply = [&](int t, const unsigned char* stage) {
    const int left = min(windows - t * kWindows, int{kWindows});
#pragma unroll 1
    for (int window = 0; window < left; window += groups.group_windows) {
      AddGroup<T, W, Staged, kRowTiles>(groups, stage, window,
                                        min(groups.group_windows, left - window), at.row, at.column,
                                        at.lane, sums);
      groups.Advance();
    }
  };
  ForEachStage<Staged>(copies, p.stages, at.first, at.end, ring, multiply);
}

// Sums codes in any groups, whose sums have a place of their own.
template <typename T, typename W, typename Staged, int kRowTiles>
__device__ __forceinline__ void SumGroups(const GemmParams& p,
                                          const typename Staged::Copies& copies,
                                          const char* weights, const WarpPlace& at,
                                          unsigned char* ring, Sums<kRowTiles>& sums) {
  Sums<kRowTiles> parts = {};
  Totals<kRowTiles> totals = {};
  constexpr uint32_t kOnes[2] = {kOnePair<T>, kOnePair<T>};
  const int windows = static_cast<int>((p.depth + kGemmWindow - 1) / kGemmWindow);
  Groups<T, W> groups(p, weights, at.block_column + at.column + at.lane / 4,
                      int64_t{at.first} * Staged::kDepth);
  const auto multiply = [&](int t, const unsigned char* stage) {
    const int left = windows - t * (Staged::kDepth / kGemmWindow);
#pragma unroll
    for (int window = 0; window < Staged::kDepth / kGemmWindow; ++window) {
      if (window >= left) break;
      uint32_t b[kFragments][2][2];
#pragma unroll
      for (int n = 0; n < kFragments; ++n) {
        Staged::template LoadCodes<T>(stage, at.column + 8 * n, window, at.lane, groups.Base(n),
                                      b[n]);
      }
#pragma unroll
      for (int product = 0; product < 2; ++product) {
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          uint32_t a[4];
          Staged::LoadIn(stage, at.row + 16 * m, 2 * window + product, at.lane, a);
#pragma unroll
          for (int n = 0; n < kFragments; ++n) Mma16x8x16<T>(parts[m][n], a, b[n][product]);
          if constexpr (Groups<T, W>::kOffsets) Mma16x8x16<T>(totals[m], a, kOnes);
        }
      }
      if (--groups.windows == 0) {
        groups.template AddScaled<kRowTiles>(at.lane, parts, totals, sums);
        groups.Advance();
      }
    }
  };
  ForEachStage<Staged>(copies, p.stages, at.first, at.end, ring, multiply);
  groups.template AddScaled<kRowTiles>(at.lane, parts, totals, sums);
}

// Sums products of 16-bit weights.
template <typename T, typename Staged, int kRowTiles>
__device__ __forceinline__ void SumElements(const GemmParams& p,
                                            const typename Staged::Copies& copies,
                                            const WarpPlace& at, unsigned char* ring,
                                            Sums<kRowTiles>& sums) {
  const auto multiply = [&](int, const unsigned char* stage) {
#pragma unroll
    for (int step = 0; step < Staged::kDepth / 16; ++step) {
      uint32_t b[kFragments][2];
      Staged::LoadWeights(stage, at.column, step, at.lane, b);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        uint32_t a[4];
        Staged::LoadIn(stage, at.row + 16 * m, step, at.lane, a);
#pragma unroll
        for (int n = 0; n < kFragments; ++n) Mma16x8x16<T>(sums[m][n], a, b[n]);
      }
    }
  };
  ForEachStage<Staged>(copies, p.stages, at.first, at.end, ring, multiply);
}

template <typename T, typename W, int kRowTiles, int kRowWarps>
__global__ void __launch_bounds__(kWarpThreads* kColumnWarps* kRowWarps) GemmKernel(GemmParams p) {
  constexpr int kRows = 16 * kRowTiles * kRowWarps;
  using Staged = Stage<W, kRows, kWarpThreads * kColumnWarps * kRowWarps>;
  TESSERA_DYNAMIC_SHARED(ring);
  if (p.expert_offsets != nullptr) WaitForEarlierLaunches();
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const RowTile rows = FindTile<kRows, Staged::kCodes>(p, static_cast<int>(blockIdx.x), lane);
  if (rows.first >= rows.end) {  // the whole block
    WaitForEarlierLaunches();
    return;
  }
  const char* weights = static_cast<const char*>(p.weights) + rows.expert * p.expert_bytes;
  const int64_t block_column = static_cast<int64_t>(blockIdx.y) * kGemmColumns;
  const int warp_row = warp / kColumnWarps * 16 * kRowTiles;
  const int warp_column = warp % kColumnWarps * kWarpColumns;
  const int stages = static_cast<int>((p.depth + Staged::kDepth - 1) / Staged::kDepth);
  const int first = static_cast<int>(blockIdx.z) * p.part_stages;
  const int end = min(first + p.part_stages, stages);
  const int thread = warp * kWarpThreads + lane;
  typename Staged::Copies copies(p, weights, block_column, thread);
  StartEarly<Staged>(copies, p.stages, first, end, ring);
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  copies.FindInputs(p, rows, thread);

  Sums<kRowTiles> sums = {};
  const WarpPlace at = {block_column, warp_row, warp_column, lane, first, end};
  if constexpr (Staged::kCodes && HasWholeGroups(kRowTiles)) {
    SumWholeGroups<T, W, Staged, kRowTiles>(p, copies, weights, at, ring, sums);
  } else if constexpr (Staged::kCodes) {
    SumGroups<T, W, Staged, kRowTiles>(p, copies, weights, at, ring, sums);
  } else {
    SumElements<T, Staged, kRowTiles>(p, copies, at, ring, sums);
  }
  StoreTile<kRowTiles, Staged::kCodes>(p, rows, warp_row, block_column + warp_column + lane % 4 * 2,
                                       lane, sums);
  if (p.parts > 1) AddParts<kRows, kWarpThreads * kColumnWarps * kRowWarps>(p, rows, ring);
}

template <typename T, typename W>
cudaError_t LaunchTile(const LinearParams& p, cudaStream_t stream) {
  const GemmProblem problem = {.rows = p.rows,
                               .columns = p.columns,
                               .experts = p.experts,
                               .weights = p.weight_dtype,
                               .capability = p.capability,
                               .multiprocessors = p.multiprocessors};
  const GemmTile tile = TileOf(p.choice, problem, p.group_size);
  GemmParams params = {p};
  params.stages = StagesOf(p.choice, tile, problem);
  const int64_t depth = GemmDepth(WeightBits(p.weight_dtype));
  GemmSplit split = {.parts = 1, .part_stages = (p.depth + depth - 1) / depth};
  if (p.part_sums != nullptr) split = ChooseGemmSplit(p.columns, p.depth, p.weight_dtype);
  params.parts = split.parts;
  params.part_stages = static_cast<int>(split.part_stages);
  const LaunchShape shape = GemmShape(tile, params.stages, problem, split.parts);
  if (split.parts > 1 &&
      (p.arrivals == nullptr || shape.blocks.x * shape.blocks.y > kMaxSplitTiles)) {
    return cudaErrorInvalidValue;
  }
  switch (tile.rows()) {
    case 16: return LaunchEarly(GemmKernel<T, W, 1, 1>, shape, stream, params);
    case 32: return LaunchEarly(GemmKernel<T, W, 2, 1>, shape, stream, params);
    case 64: return LaunchEarly(GemmKernel<T, W, 4, 1>, shape, stream, params);
    default: return LaunchEarly(GemmKernel<T, W, 4, 2>, shape, stream, params);
  }
}

template <typename T>
cudaError_t LaunchOf(const LinearParams& p, DType type, cudaStream_t stream) {
  if (p.weight_dtype == type) return LaunchTile<T, T>(p, stream);
  const bool groups = p.group_size > 0 && p.group_size % kGemmWindow == 0;
  if (!groups) return cudaErrorInvalidValue;
  return WithCodeType(p, [&](auto codes) { return LaunchTile<T, decltype(codes)>(p, stream); });
}

}  // namespace

cudaError_t LaunchGemm(const LinearParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.columns == 0) return cudaSuccess;
  const bool aligned =
      reinterpret_cast<uintptr_t>(params.weights) % 16 == 0 && params.weight_row_bytes % 16 == 0 &&
      params.expert_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(params.in) % 16 == 0 &&
      params.in_stride % 8 == 0 && reinterpret_cast<uintptr_t>(params.part_sums) % 16 == 0;
  const bool split =
      params.part_sums == nullptr ||
      (params.rows <= kMaxSplitRows && params.expert_offsets == nullptr && params.head_rows == 0);
  if (!aligned || !split) return cudaErrorInvalidValue;
  switch (params.in_dtype) {
    case DType::kBF16: return LaunchOf<BFloat16>(params, DType::kBF16, stream);
    case DType::kF16: return LaunchOf<Float16>(params, DType::kF16, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
