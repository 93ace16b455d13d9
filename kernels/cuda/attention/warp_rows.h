// Sixteen query rows of a warp against tiles of keys and values: products on tensor cores, the
// softmax as it goes (Dao et al., "FlashAttention-2", 2023). For .cu files.
//
// With g = lane / 4 and t = lane % 4, a lane holds of rows g and g + 8 ("halves" 0 and 1) columns
// 2t and 2t + 1 of every eight: the fragments of warp_ops.h.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention/key_tiles.h"
#include "kernels/cuda/attention/tiled_params.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// The rows of one kv head in one sequence: row i is head i % group of the group at the sequence's
// row i / group.
struct SequenceRows {
  int sequence, kv_head;
  int first_row;       // of the call
  int count;           // rows times group
  int first_position;  // of row 0

  __device__ __forceinline__ int PositionOf(int row, const TiledParams& p) const {
    return first_position + min(row, count - 1) / p.group;
  }
  // The first element of a row in [rows, heads, D], or null where there is no such row.
  template <typename Pointer>
  __device__ __forceinline__ Pointer ElementsOf(Pointer base, int64_t stride, int row,
                                                const TiledParams& p) const {
    if (row >= count) return nullptr;
    const int64_t head = kv_head * p.group + row % p.group;
    const int64_t element = (first_row + row / p.group) * stride + head * p.attention.head_dim;
    return base + element * (p.attention.dtype == DType::kF32 ? 4 : 2);
  }
};

// Keys that the rows of a warp see. Rows that do not exist see what the last one does.
struct KeysSeen {
  int begin[2], end[2];    // of the lane's halves
  int any_begin, any_end;  // of the warp: seen by a row
  int all_begin, all_end;  // seen by every row
};

__device__ __forceinline__ int FirstKey(int end, const AttentionParams& p) {
  const int window = static_cast<int>(min(p.window, int64_t{0x7fffffff}));
  return window == 0 ? 0 : max(0, end - window);
}

// Of the rows from `first` on.
__device__ __forceinline__ KeysSeen KeysSeenBy(const SequenceRows& rows, int first,
                                               const TiledParams& p) {
  KeysSeen seen;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    seen.end[half] = rows.PositionOf(first + lane / 4 + half * 8, p) + 1;
    seen.begin[half] = FirstKey(seen.end[half], p.attention);
  }
  seen.all_end = rows.PositionOf(first, p) + 1;
  seen.any_end = rows.PositionOf(first + kWarpRows - 1, p) + 1;
  seen.any_begin = FirstKey(seen.all_end, p.attention);
  seen.all_begin = FirstKey(seen.any_end, p.attention);
  return seen;
}

__device__ __forceinline__ Pages PagesOf(const SequenceRows& rows, int begin, int end,
                                         const TiledParams& p) {
  const AttentionParams& a = p.attention;
  return {static_cast<const uint16_t*>(a.keys) + rows.kv_head * a.keys_stride,
          static_cast<const uint16_t*>(a.values) + rows.kv_head * a.values_stride,
          a.block_tables + rows.sequence * a.table_stride, begin, end};
}

// Elements i and i + 1 of queries or outputs, in T or in f32.
template <typename T>
__device__ __forceinline__ uint32_t LoadPair(const unsigned char* row, int i, DType dtype) {
  if (dtype == DType::kF32) {
    const float2 pair = *reinterpret_cast<const float2*>(row + 4 * i);
    return RoundPair<T>(pair.x, pair.y);
  }
  return *reinterpret_cast<const uint32_t*>(row + 2 * i);
}

template <typename T>
__device__ __forceinline__ void StorePair(unsigned char* row, int i, DType dtype, float low,
                                          float high) {
  if (dtype == DType::kF32) {
    *reinterpret_cast<float2*>(row + 4 * i) = {low, high};
  } else {
    *reinterpret_cast<uint32_t*>(row + 2 * i) = RoundPair<T>(low, high);
  }
}

template <typename T, int D>
struct WarpRows {
  // Where they take too many registers, queries lie in shared memory, of which a lane reads what it
  // wrote itself.
  static constexpr bool kQueriesInShared = QueryBytes(D) > 0;
  static_assert(!kQueriesInShared || QueryBytes(D) == D / 16 * kWarpThreads * sizeof(uint4));

  uint4 registers[kQueriesInShared ? 1 : D / 16];
  uint4* shared;        // of the lane: 16 elements behind kWarpThreads others
  float out[D / 8][4];  // sums of values by weights
  float largest[2];     // score so far, a power of two
  float total[2];       // of the lane's weights

  // Zeros for rows that do not exist. `memory`: QueryBytes(D) of the warp's own.
  __device__ __forceinline__ void Begin(const SequenceRows& rows, int first, const TiledParams& p,
                                        unsigned char* memory) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    shared = reinterpret_cast<uint4*>(memory) + lane;
    const auto* const q = static_cast<const unsigned char*>(p.attention.q);
    const unsigned char* const of_half[2] = {
        rows.ElementsOf(q, p.attention.q_stride, first + lane / 4, p),
        rows.ElementsOf(q, p.attention.q_stride, first + lane / 4 + 8, p)};
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      uint32_t pairs[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const unsigned char* const row = of_half[r % 2];
        const int element = k * 16 + r / 2 * 8 + lane % 4 * 2;
        pairs[r] = row == nullptr ? 0 : LoadPair<T>(row, element, p.attention.dtype);
      }
      const uint4 fragment = {pairs[0], pairs[1], pairs[2], pairs[3]};
      if constexpr (kQueriesInShared) {
        shared[k * kWarpThreads] = fragment;
      } else {
        registers[k] = fragment;
      }
    }
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) out[i][j] = 0;
    }
    largest[0] = largest[1] = -INFINITY;
    total[0] = total[1] = 0;
  }

  // scores[j][..] of the tile's keys 8j to 8j + 7.
  template <int kKeys>
  __device__ __forceinline__ void Score(const unsigned char* keys,
                                        float (&scores)[kKeys / 8][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads, matrix = lane / 8;
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[j][i] = 0;
    }
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      const uint4 fragment = kQueriesInShared ? shared[k * kWarpThreads] : registers[k];
      const uint32_t queries[4] = {fragment.x, fragment.y, fragment.z, fragment.w};
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        uint32_t b[4];  // of keys 16j to 16j + 7 and of the next eight
        const int row = j * 16 + matrix / 2 * 8 + lane % 8;
        LoadMatrices(b, keys + TileLayout<D>::Offset(row, k * 2 + matrix % 2));
        const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
        Mma16x8x16<T>(scores[2 * j], queries, low);
        Mma16x8x16<T>(scores[2 * j + 1], queries, high);
      }
    }
  }

  // Turns the scores of keys from `first_key` on into weights, and brings the sums to the base of
  // the largest score. A tile of which a row sees nothing leaves the row's bits as they are.
  template <int kKeys>
  __device__ __forceinline__ void Weigh(float (&scores)[kKeys / 8][4], int first_key,
                                        const KeysSeen& seen, float scale_log2) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    if (first_key < seen.all_begin || first_key + kKeys > seen.all_end) {
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = first_key + j * 8 + lane % 4 * 2 + i % 2;
          if (key < seen.begin[i / 2] || key >= seen.end[i / 2]) scores[j][i] = -INFINITY;
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = -INFINITY;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
        most = fmaxf(most, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
      }
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
      most = fmaxf(largest[half], most * scale_log2);
      const float base = most == -INFINITY ? 0 : most;
      const float rescale = Exp2(largest[half] - base);
      largest[half] = most;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[j][2 * half + i];
          score = Exp2(score * scale_log2 - base);
          sum += score;
        }
      }
      total[half] = total[half] * rescale + sum;
#pragma unroll
      for (int i = 0; i < D / 8; ++i) {
        out[i][2 * half] *= rescale;
        out[i][2 * half + 1] *= rescale;
      }
    }
  }

  template <int kKeys>
  __device__ __forceinline__ void AddValues(const unsigned char* values,
                                            const uint32_t (&weights)[kKeys / 16][4]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads, matrix = lane / 8;
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
#pragma unroll
      for (int j = 0; j < D / 16; ++j) {
        uint32_t b[4];  // of elements 16j to 16j + 7 and of the next eight
        const int row = k * 16 + matrix % 2 * 8 + lane % 8;
        LoadMatricesTransposed(b, values + TileLayout<D>::Offset(row, j * 2 + matrix / 2));
        const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
        Mma16x8x16<T>(out[2 * j], weights[k], low);
        Mma16x8x16<T>(out[2 * j + 1], weights[k], high);
      }
    }
  }

  // The tiles of a ring, of which the first begins with key first * kKeys. `works`: whether the
  // warp has a row; it takes part in the loads in any case.
  template <int kKeys, int kThreads>
  __device__ __forceinline__ void Attend(TileRing<D, kKeys, kThreads>& ring, int first, int step,
                                         int tiles, bool works, const KeysSeen& seen,
                                         float scale_log2) {
    for (int tile = 0; tile < tiles; ++tile) {
      const int first_key = (first + tile * step) * kKeys;
      const bool sees =
          works && first_key < seen.any_end && first_key + kKeys > seen.any_begin;  // of a warp
      const unsigned char* const keys = ring.Next();
      uint32_t weights[kKeys / 16][4];
      if (sees) {
        float scores[kKeys / 8][4];
        Score<kKeys>(keys, scores);
        Weigh<kKeys>(scores, first_key, seen, scale_log2);
#pragma unroll
        for (int k = 0; k < kKeys / 16; ++k) {
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            const float(&of_keys)[4] = scores[2 * k + r / 2];
            weights[k][r] = RoundPair<T>(of_keys[r % 2 * 2], of_keys[r % 2 * 2 + 1]);
          }
        }
      }
      const unsigned char* const values = ring.Next();
      if (sees) AddValues<kKeys>(values, weights);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      total[half] += __shfl_xor_sync(kAllLanes, total[half], 1);
      total[half] += __shfl_xor_sync(kAllLanes, total[half], 2);
    }
  }
};

// launch(T{}, std::integral_constant<int, D>{}) with the types that the cache has.
template <typename LaunchAs>
cudaError_t WithCacheOf(const AttentionParams& attention, LaunchAs launch) {
  const auto with_size = [&](auto type) {
    switch (attention.head_dim) {
      case 64: return launch(type, std::integral_constant<int, 64>{});
      case 80: return launch(type, std::integral_constant<int, 80>{});
      case 96: return launch(type, std::integral_constant<int, 96>{});
      case 128: return launch(type, std::integral_constant<int, 128>{});
      case 256: return launch(type, std::integral_constant<int, 256>{});
      default: return cudaErrorInvalidValue;
    }
  };
  switch (attention.cache_dtype) {
    case DType::kBF16: return with_size(BFloat16{});
    case DType::kF16: return with_size(Float16{});
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
