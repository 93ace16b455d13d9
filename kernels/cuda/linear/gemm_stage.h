// How a stage of the GEMM stands in shared memory, how copies fill it, and how fragments come out.
// For .cu files.
//
// A stage holds rows of 16-bit inputs and, per column, weights as they stand in memory. Inputs and
// 16-bit weights become fragments by matrix loads. float8, int8, e2m1 and int4 codes stand in the
// order of fragments (device/weight_rows.h): a lane reads the 8 codes that it has in a window of 32
// inputs, two products, at once.
#pragma once

#include <type_traits>

#include "kernels/cuda/launch/linear_shapes.h"
#include "kernels/cuda/linear/half_pairs.h"
#include "kernels/cuda/linear/linear_kernels.h"
#include "kernels/cuda/linear/store_sum.h"
#include "kernels/cuda/platform.h"
#include "kernels/cuda/warp_ops.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

constexpr int kColumnWarps = 4, kWarpColumns = kGemmColumns / kColumnWarps;
constexpr int kFragments = kWarpColumns / 8;  // columns of a warp, in fragments of 8

// Which rows a block has; none: first == end.
struct RowTile {
  int expert, first, end;
};

template <typename W>
constexpr bool kHasFourBits =
    std::is_same_v<W, Nibbles> || std::is_same_v<W, OffsetNibbles> || std::is_same_v<W, E2m1>;

// A tile of kRows rows and kGemmColumns columns, by kThreads threads.
template <typename W, int kTileRows, int kTileThreads>
struct Stage {
  static constexpr int kBits = kHasFourBits<W> ? 4 : 8 * static_cast<int>(sizeof(W));
  static constexpr bool kCodes = kBits < 16;
  static constexpr int kDepth = GemmDepth(kBits);
  static constexpr int kInRowBytes = 2 * kDepth, kWeightRowBytes = kDepth * kBits / 8;
  static constexpr int kInBytes = kTileRows * kInRowBytes;
  static constexpr int kBytes = GemmStageBytes(kTileRows, kBits);
  static_assert(kBytes == kInBytes + kGemmColumns * kWeightRowBytes);

  // Where a chunk of 16 bytes stands. What lanes read together lies in different banks. Every 8
  // rows or columns are alike.
  static __device__ __forceinline__ int InOffset(int row, int chunk) {
    return row * kInRowBytes + (chunk ^ row % 8) * 16;
  }
  static __device__ __forceinline__ int WeightOffset(int column, int chunk) {
    const int moved = kBits == 4 ? column / 2 % 4 : kBits == 8 ? column % 4 * 2 : column % 8;
    return kInBytes + column * kWeightRowBytes + (chunk ^ moved) * 16;
  }

  // What a thread copies, stage after stage. What lies beyond a matrix becomes zero.
  struct Copies {
    static constexpr int kInChunks = kInRowBytes / 16, kInStep = kTileThreads / kInChunks;
    static constexpr int kChunks = kWeightRowBytes / 16, kStep = kTileThreads / kChunks;

    const char* in[kTileRows / kInStep];  // its chunk of each of its rows
    const char* weights;                  // of its first column
    int64_t column_bytes;                 // from one of its columns to the next one
    int in_chunks, weight_chunks;         // of a row, from the thread's first one on
    int rows, columns;                    // that are there, from the thread's first one on
    unsigned in_to, weights_to;           // in a stage

    // Copies of the weights alone. `expert_weights` are those of the tile's expert.
    __device__ __forceinline__ Copies(const LinearParams& p, const char* expert_weights,
                                      int64_t first_column, int thread) {
      const int chunk = thread % kChunks, column = thread / kChunks;
      const int64_t own_column = min(first_column + column, p.columns - 1);
      weights = expert_weights + own_column * p.weight_row_bytes + chunk * 16;
      column_bytes = kStep * p.weight_row_bytes;
      columns = static_cast<int>(min(p.columns - first_column - column, int64_t{kGemmColumns}));
      // Codes stand in whole windows.
      const int64_t all_chunks =
          kCodes ? (p.depth + kGemmWindow - 1) / kGemmWindow * (kBits / 4) : (p.depth + 7) / 8;
      weight_chunks = static_cast<int>(all_chunks) - chunk;
      weights_to = WeightOffset(column, chunk);
    }
    __device__ __forceinline__ void FindInputs(const LinearParams& p, const RowTile& tile,
                                               int thread) {
      const int in_chunk = thread % kInChunks, row = thread / kInChunks;
      const int64_t first_row = tile.first + row;
#pragma unroll
      for (int i = 0; i < kTileRows / kInStep; ++i) {
        const int64_t out_row = min(first_row + i * kInStep, int64_t{tile.end} - 1);
        const int64_t source =
            p.source_rows == nullptr ? RowPlace<kCodes>(p, out_row) : p.source_rows[out_row];
        in[i] = static_cast<const char*>(p.in) + source * p.in_stride * 2 + in_chunk * 16;
      }
      rows = static_cast<int>(min(tile.end - first_row, int64_t{kTileRows}));
      in_chunks = static_cast<int>((p.depth + 7) / 8) - in_chunk;
      in_to = InOffset(row, in_chunk);
    }
    // Starts those of a stage: inputs from `number` * kDepth on.
    __device__ __forceinline__ void StartInputs(int number, unsigned char* stage) const {
      const bool in_depth = number * kInChunks < in_chunks;
      const int64_t in_at = in_depth ? number * int64_t{kInRowBytes} : 0;
#pragma unroll
      for (int i = 0; i < kTileRows / kInStep; ++i) {
        CopyAsync16(stage + in_to + i * kInStep * kInRowBytes, in[i] + in_at,
                    in_depth && i * kInStep < rows);
      }
    }
    __device__ __forceinline__ void StartWeights(int number, unsigned char* stage) const {
      const bool in_row = number * kChunks < weight_chunks;
      const char* from = weights + (in_row ? number * int64_t{kWeightRowBytes} : 0);
#pragma unroll
      for (int i = 0; i < kGemmColumns; i += kStep) {
        CopyAsync16(stage + weights_to + i * kWeightRowBytes, from, in_row && i < columns);
        // Beyond the last column its address stays that of a column.
        if (i + kStep < columns) from += column_bytes;
      }
    }
  };

  // The fragments for product `step` of 16 inputs.
  static __device__ __forceinline__ void LoadIn(const unsigned char* stage, int first_row, int step,
                                                int lane, uint32_t (&a)[4]) {
    LoadMatrices(a, stage + first_row * kInRowBytes + InOffset(lane % 16, 2 * step + lane / 16));
  }
  // Loads 16-bit weights.
  static __device__ __forceinline__ void LoadWeights(const unsigned char* stage, int first_column,
                                                     int step, int lane,
                                                     uint32_t (&b)[kFragments][2]) {
#pragma unroll
    for (int n = 0; n < kFragments; n += 2) {
      const int column = first_column + 8 * n + lane / 16 * 8;
      uint32_t four[4];
      LoadMatrices(
          four, stage + column * kWeightRowBytes + WeightOffset(lane % 8, 2 * step + lane / 8 % 2));
      b[n][0] = four[0];
      b[n][1] = four[1];
      b[n + 1][0] = four[2];
      b[n + 1][1] = four[3];
    }
  }

  // Widens codes: both products of window `window`, one column of fragments. `base`: CodePairBase,
  // or NibblePairBase of the group of int4 weights. b: registers 0, 1 of the first product, then of
  // the second.
  template <typename T>
  static __device__ __forceinline__ void LoadCodes(const unsigned char* stage, int first_column,
                                                   int window, int lane, uint32_t base,
                                                   uint32_t (&b)[2][2]) {
    const unsigned char* const columns = stage + first_column * kWeightRowBytes;
    const int column = lane / 4, part = lane % 4;
    uint32_t pairs[4];
    if constexpr (kBits == 4) {
      const unsigned char* at = columns + WeightOffset(column, window) + 4 * part;
      const uint32_t codes = *reinterpret_cast<const uint32_t*>(at);
      if constexpr (std::is_same_v<W, E2m1>) {
        E2m1sAsPairs<T>(codes, pairs);
      } else {
        NibblesAsPairs<T>(codes, base, pairs);
      }
    } else {
      const unsigned char* at =
          columns + WeightOffset(column, 2 * window + part / 2) + part % 2 * 8;
      const uint2 codes = *reinterpret_cast<const uint2*>(at);
      if constexpr (std::is_same_v<W, Float8>) {
        Float8sAsPairs<T>(codes.x, pairs);
        Float8sAsPairs<T>(codes.y, pairs + 2);
      } else {
        CodesAsPairs<T>(codes.x, base, pairs);
        CodesAsPairs<T>(codes.y, base, pairs + 2);
      }
    }
    b[0][0] = pairs[0], b[0][1] = pairs[1], b[1][0] = pairs[2], b[1][1] = pairs[3];
  }
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
