// Many rows on tensor cores. A block computes a tile of outputs; tiles of inputs and weights pass
// through shared memory in stages, which asynchronous copies fill ahead. int8 and int4 weights stay
// codes until they are fragments; the sums of a group of them are scaled together, so that no
// weight is rounded.
#include <type_traits>

#include "kernels/cuda/launch/linear_shapes.h"
#include "kernels/cuda/linear/half_pairs.h"
#include "kernels/cuda/linear/linear_kernels.h"
#include "kernels/cuda/linear/store_sum.h"
#include "kernels/cuda/platform.h"
#include "kernels/cuda/warp_ops.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr int kColumnWarps = 4, kWarpColumns = kGemmColumns / kColumnWarps;
constexpr int kFragments = kWarpColumns / 8;  // columns of a warp, in fragments of 8
constexpr int kChunks = kGemmRowBytes / 16;   // 16-byte chunks of a row of 16-bit numbers
constexpr int kSteps = kGemmDepth / 16;       // products of a stage

// Where a chunk of a row stands in a stage: rows that a matrix load reads together lie in different
// banks.
__device__ __forceinline__ int ChunkOffset(int row, int chunk) {
  return row * kGemmRowBytes + ((chunk ^ (row / 2)) % kChunks) * 16;
}

// Which rows a block has; none: first == end.
struct RowTile {
  int64_t expert, first, end;
};

__device__ __forceinline__ RowTile FindTile(const LinearParams& p, int64_t tile, int tile_rows) {
  if (p.expert_offsets == nullptr) return {0, min(tile * tile_rows, p.rows), p.rows};
  for (int64_t e = 0; e < p.experts; ++e) {
    const int64_t begin = p.expert_offsets[e], end = p.expert_offsets[e + 1];
    const int64_t tiles = (end - begin + tile_rows - 1) / tile_rows;
    if (tile < tiles) return {e, begin + tile * tile_rows, end};
    tile -= tiles;
  }
  return {0, 0, 0};
}

// How weights stand in a stage: 16-bit numbers, or codes whose sums are scaled group by group.
template <typename W>
struct StagedWeights {
  static constexpr bool kCodes = false;
  static constexpr int kRowBytes = kGemmRowBytes;
};
template <>
struct StagedWeights<int8_t> {
  static constexpr bool kCodes = true;
  static constexpr int kRowBytes = kGemmCodeBytes;
};
template <>
struct StagedWeights<Nibbles> {
  static constexpr bool kCodes = true;
  static constexpr int kRowBytes = kGemmNibbleBytes;
};

template <typename W, int kRowTiles, int kRowWarps>
struct Tile {
  static constexpr bool kCodes = StagedWeights<W>::kCodes;
  static constexpr int kWeightBytes = StagedWeights<W>::kRowBytes;
  static constexpr int kRows = 16 * kRowTiles * kRowWarps;
  static constexpr int kThreads = kWarpThreads * kColumnWarps * kRowWarps;
  static constexpr int kInBytes = kRows * kGemmRowBytes;
  static constexpr int kStageBytes = kInBytes + kGemmColumns * kWeightBytes;

  const LinearParams& p;
  const char* weights;  // of the expert
  RowTile rows;
  int64_t first_column;
  unsigned char* shared;
  int thread;

  // Starts the copies of stage `stage`, inputs [depth_tile * kGemmDepth, + kGemmDepth). What lies
  // beyond a matrix is zero.
  __device__ __forceinline__ void Load(int stage, int64_t depth_tile) const {
    unsigned char* const in_tile = shared + stage * kStageBytes;
    const int64_t chunks = (p.depth + 7) / 8;
    for (int i = thread; i < kRows * kChunks; i += kThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      const int64_t out_row = rows.first + row, at = depth_tile * kChunks + chunk;
      const bool valid = out_row < rows.end && at < chunks;
      const char* from = static_cast<const char*>(p.in);
      if (valid) {
        const int64_t source = p.source_rows == nullptr ? out_row : p.source_rows[out_row];
        from += source * p.in_stride * 2 + at * 16;
      }
      CopyAsync16(in_tile + ChunkOffset(row, chunk), from, valid);
    }
    unsigned char* const weight_tile = in_tile + kInBytes;
    constexpr int kOfRow = kWeightBytes / 16, kOfChunk = kGemmDepth / kOfRow;
    const int64_t weight_chunks = (p.depth + kOfChunk - 1) / kOfChunk;
    for (int i = thread; i < kGemmColumns * kOfRow; i += kThreads) {
      const int row = i / kOfRow, chunk = i % kOfRow;
      const int64_t column = first_column + row, at = depth_tile * kOfRow + chunk;
      const bool valid = column < p.columns && at < weight_chunks;
      const char* from = valid ? weights + column * p.weight_row_bytes + at * 16 : weights;
      const int to = kCodes ? row * kWeightBytes + chunk * 16 : ChunkOffset(row, chunk);
      CopyAsync16(weight_tile + to, from, valid);
    }
  }
};

// Of the words of a lane's columns, one in each fragment: NibbleBase.
using Bases = float[kFragments];

// The fragments of a warp's 32 columns for one product: two registers for each 8 of them.
template <typename T, typename W>
__device__ __forceinline__ void LoadWeights(const unsigned char* tile, int first_column, int step,
                                            int lane, const Bases& bases,
                                            uint32_t (&b)[kFragments][2]) {
  if constexpr (std::is_same_v<W, Nibbles>) {
#pragma unroll
    for (int n = 0; n < kFragments; ++n) {
      const unsigned char* codes =
          tile + (first_column + 8 * n + lane / 4) * kGemmNibbleBytes + 8 * step + lane % 4;
      b[n][0] = NibblesAsPair<T>(codes[0], bases[n]);
      b[n][1] = NibblesAsPair<T>(codes[4], bases[n]);
    }
  } else if constexpr (std::is_same_v<W, int8_t>) {
#pragma unroll
    for (int n = 0; n < kFragments; ++n) {
      const unsigned char* codes =
          tile + (first_column + 8 * n + lane / 4) * kGemmCodeBytes + 16 * step + lane % 4 * 2;
      b[n][0] = CodesAsPair<T>(*reinterpret_cast<const uint16_t*>(codes));
      b[n][1] = CodesAsPair<T>(*reinterpret_cast<const uint16_t*>(codes + 8));
    }
  } else {
#pragma unroll
    for (int n = 0; n < kFragments; n += 2) {
      const int row = first_column + 8 * n + lane / 16 * 8 + lane % 8;
      uint32_t four[4];
      LoadMatrices(four, tile + ChunkOffset(row, 2 * step + lane / 8 % 2));
      b[n][0] = four[0];
      b[n][1] = four[1];
      b[n + 1][0] = four[2];
      b[n + 1][1] = four[3];
    }
  }
}

template <int kRowTiles>
using Sums = float[kRowTiles][kFragments][4];

__device__ __forceinline__ uint32_t WordOf(const LinearParams& p, const char* weights,
                                           int64_t column, int64_t group) {
  if (column >= p.columns) return 0;
  const char* row = weights + column * p.weight_row_bytes + p.scales_offset_bytes;
  return reinterpret_cast<const uint32_t*>(row)[group];
}

// sums += scale of the column * parts, and parts = 0.
template <typename W, int kRowTiles>
__device__ __forceinline__ void AddScaled(const LinearParams& p, const char* weights,
                                          int64_t first_column, int64_t group,
                                          Sums<kRowTiles>& parts, Sums<kRowTiles>& sums) {
#pragma unroll
  for (int n = 0; n < kFragments; ++n) {
    for (int j = 0; j < 2; ++j) {
      const uint32_t word = WordOf(p, weights, first_column + 8 * n + j, group);
      const float scale = std::is_same_v<W, Nibbles> ? NibbleScale(word) : __uint_as_float(word);
      for (int m = 0; m < kRowTiles; ++m) {
        for (int i = j; i < 4; i += 2) {
          sums[m][n][i] += scale * parts[m][n][i];
          parts[m][n][i] = 0;
        }
      }
    }
  }
}

template <typename T, typename W, int kRowTiles, int kRowWarps>
__global__ void __launch_bounds__(kWarpThreads* kColumnWarps* kRowWarps)
    GemmKernel(LinearParams p) {
  using Shape = Tile<W, kRowTiles, kRowWarps>;
  TESSERA_DYNAMIC_SHARED(shared);
  const RowTile rows = FindTile(p, blockIdx.x, Shape::kRows);
  if (rows.first >= rows.end) return;  // the whole block
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const char* weights = static_cast<const char*>(p.weights) + rows.expert * p.expert_bytes;
  const int64_t block_column = static_cast<int64_t>(blockIdx.y) * kGemmColumns;
  const Shape tile = {p, weights, rows, block_column, shared, warp * kWarpThreads + lane};
  const int warp_row = warp / kColumnWarps * 16 * kRowTiles;
  const int warp_column = warp % kColumnWarps * kWarpColumns;
  // The first of a lane's two columns in each fragment.
  const int64_t lane_column = block_column + warp_column + lane % 4 * 2;

  const int64_t depth_tiles = (p.depth + kGemmDepth - 1) / kGemmDepth;
  for (int stage = 0; stage < kGemmStages - 1; ++stage) {
    if (stage < depth_tiles) tile.Load(stage, stage);
    CommitCopies();
  }
  Sums<kRowTiles> sums = {}, parts = {};  // parts: of a group of codes
  Bases bases = {};                       // of the group
  int stage = 0;
  for (int64_t t = 0; t < depth_tiles; ++t) {
    WaitCopies<kGemmStages - 2>();
    __syncthreads();  // all have copied this stage, and are through with the one before it
    const int64_t ahead = t + kGemmStages - 1;
    if (ahead < depth_tiles) {
      tile.Load(stage == 0 ? kGemmStages - 1 : stage - 1, ahead);
    }
    CommitCopies();
    if constexpr (std::is_same_v<W, Nibbles>) {
      if (t * kGemmDepth % p.group_size == 0) {
        const int64_t group = t * kGemmDepth / p.group_size;
        const int64_t column = block_column + warp_column + lane / 4;
        for (int n = 0; n < kFragments; ++n) {
          bases[n] = NibbleBase(WordOf(p, weights, column + 8 * n, group));
        }
      }
    }
    const unsigned char* in_tile = shared + stage * Shape::kStageBytes;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t b[kFragments][2];
      LoadWeights<T, W>(in_tile + Shape::kInBytes, warp_column, step, lane, bases, b);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        uint32_t a[4];
        LoadMatrices(a, in_tile + ChunkOffset(warp_row + 16 * m + lane % 16, 2 * step + lane / 16));
#pragma unroll
        for (int n = 0; n < kFragments; ++n) {
          if constexpr (Shape::kCodes) {
            Mma16x8x16<T>(parts[m][n], a, b[n]);
          } else {
            Mma16x8x16<T>(sums[m][n], a, b[n]);
          }
        }
      }
    }
    if constexpr (Shape::kCodes) {
      const int64_t next = (t + 1) * kGemmDepth;
      if (next % p.group_size == 0 || t + 1 == depth_tiles) {
        AddScaled<W, kRowTiles>(p, weights, lane_column, (next - 1) / p.group_size, parts, sums);
      }
    }
    stage = stage + 1 == kGemmStages ? 0 : stage + 1;
  }
  WaitCopies<0>();
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    for (int half = 0; half < 2; ++half) {
      const int64_t row = rows.first + warp_row + 16 * m + 8 * half + lane / 4;
      if (row >= rows.end) continue;
      for (int n = 0; n < kFragments; ++n) {
        StoreSum(p, row, lane_column + 8 * n, sums[m][n][2 * half]);
        StoreSum(p, row, lane_column + 8 * n + 1, sums[m][n][2 * half + 1]);
      }
    }
  }
}

template <typename T, typename W>
cudaError_t LaunchTile(const LinearParams& p, cudaStream_t stream) {
  const GemmTile tile = ChooseGemmTile(p.rows, p.columns, p.experts, p.multiprocessors);
  const LaunchShape shape = GemmShape(tile, p.rows, p.columns, p.experts, p.weight_dtype);
  switch (tile.rows()) {
    case 16: return Launch(GemmKernel<T, W, 1, 1>, shape, stream, p);
    case 32: return Launch(GemmKernel<T, W, 2, 1>, shape, stream, p);
    case 64: return Launch(GemmKernel<T, W, 4, 1>, shape, stream, p);
    default: return Launch(GemmKernel<T, W, 4, 2>, shape, stream, p);
  }
}

template <typename T>
cudaError_t LaunchOf(const LinearParams& p, DType type, cudaStream_t stream) {
  if (p.weight_dtype == type) return LaunchTile<T, T>(p, stream);
  const bool groups = p.group_size > 0 && p.group_size % kGemmDepth == 0;
  if (!groups) return cudaErrorInvalidValue;
  if (p.weight_dtype == DType::kI4) return LaunchTile<T, Nibbles>(p, stream);
  return p.weight_dtype == DType::kI8 ? LaunchTile<T, int8_t>(p, stream) : cudaErrorInvalidValue;
}

}  // namespace

cudaError_t LaunchGemm(const LinearParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.columns == 0) return cudaSuccess;
  const bool aligned = reinterpret_cast<uintptr_t>(params.weights) % 16 == 0 &&
                       params.weight_row_bytes % 16 == 0 && params.expert_bytes % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(params.in) % 16 == 0 &&
                       params.in_stride % 8 == 0;
  if (!aligned) return cudaErrorInvalidValue;
  switch (params.in_dtype) {
    case DType::kBF16: return LaunchOf<BFloat16>(params, DType::kBF16, stream);
    case DType::kF16: return LaunchOf<Float16>(params, DType::kF16, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
