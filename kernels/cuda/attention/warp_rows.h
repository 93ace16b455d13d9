// Query rows of a warp, sixteen or twice as many, against tiles of keys and values: products on
// tensor cores, the softmax as it goes (Dao et al., "FlashAttention-2", 2023). For .cu files.
//
// With g = lane / 4 and t = lane % 4, a lane holds of rows g and g + 8 ("halves" 0 and 1) of each
// sixteen columns 2t and 2t + 1 of every eight: the fragments of warp_ops.h.
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
    return first_position + p.group.Of(min(row, count - 1));
  }
  // The query head of a row.
  __device__ __forceinline__ int64_t HeadOf(int row, const TiledParams& p) const {
    return row + (kv_head - p.group.Of(row)) * p.group.number;
  }
  // The first element of a row in [rows, heads, head_dim] of a type.
  template <typename Pointer>
  __device__ __forceinline__ Pointer ElementsOf(Pointer base, int64_t stride, DType dtype, int row,
                                                const TiledParams& p) const {
    const int row_of_sequence = p.group.Of(row);
    const int64_t element =
        (first_row + row_of_sequence) * stride + HeadOf(row, p) * p.attention.head_dim;
    return base + element * (dtype == DType::kF32 ? 4 : 2);
  }
  __device__ __forceinline__ unsigned char* OutputsOf(int row, const TiledParams& p) const {
    const AttentionParams& a = p.attention;
    return ElementsOf(static_cast<unsigned char*>(a.out), a.out_stride, a.out_dtype, row, p);
  }
};

// Keys that a row sees at most.
__device__ __forceinline__ int WindowOf(const AttentionParams& p) {
  constexpr int kAll = 1 << 30;  // longer than contexts; ends less it are numbers, too
  return p.window == 0 ? kAll : static_cast<int>(min(p.window, int64_t{kAll}));
}

// Keys that a row sees up to its end, unless there are none before them: its window, or those of
// its own chunk.
__device__ __forceinline__ int KeysSeenBy(int end, const AttentionParams& p) {
  const int window = WindowOf(p);
  return p.chunked ? (end - 1) % window + 1 : window;
}

// kGeneral: with chunks; see WarpRows.
template <bool kGeneral>
__device__ __forceinline__ int FirstKey(int end, const AttentionParams& p) {
  return max(0, end - (kGeneral ? KeysSeenBy(end, p) : WindowOf(p)));
}

// Splits of which a row sees a key.
struct Splits {
  int begin, end;

  // The row sees keys up to, not including, `context`. kWide: of a wide head, where `decode` does
  // not count.
  template <bool kGeneral, bool kWide = false>
  __device__ __forceinline__ static Splits Of(bool decode, int context, const AttentionParams& p) {
    const int first = FirstKey<kGeneral>(context, p), last = context - 1;
    if constexpr (kWide) return {first / kWideSplitKeys, last / kWideSplitKeys + 1};
    if (decode) return {SplitOf(first), SplitOf(last) + 1};
    return {first / kPrefillSplitKeys, last / kPrefillSplitKeys + 1};
  }
  __device__ __forceinline__ bool Has(int split) const { return split >= begin && split < end; }
  __device__ __forceinline__ int count() const { return end - begin; }
};

// What one split of a head leaves behind for a row of the wave: its sums of values, the largest
// score, the total weight.
__device__ __forceinline__ float* PartialOf(int row, int64_t head, int split,
                                            const TiledParams& p) {
  const int64_t at = row * p.attention.heads + head;
  return p.partials + (at * p.splits + split) * (p.attention.head_dim + 2);
}

// The weight of a head's sink beside weights relative to `largest`, a power of two.
__device__ __forceinline__ float SinkWeight(const AttentionParams& p, int64_t head, float largest) {
  constexpr float kLog2OfE = 1.44269504f;
  if (p.sinks == nullptr) return 0;
  return Exp2(p.sinks[head] * kLog2OfE - (largest == -INFINITY ? 0 : largest));
}

// Keys that the rows of a warp see: so many up to the end of each, of chunks at most.
struct KeysSeen {
  int first_end, last_end;  // of the warp's first and last row
  int keys;
};

__device__ __forceinline__ Pages PagesOf(const SequenceRows& rows, int begin, int end,
                                         const TiledParams& p) {
  const AttentionParams& a = p.attention;
  const auto table = static_cast<uint32_t>(rows.sequence) * static_cast<uint32_t>(a.table_stride);
  return {rows.kv_head, table, begin, end};
}

// Both as T; beyond float16 is its largest number.
template <typename T>
__device__ __forceinline__ uint32_t PairWithin(float2 pair) {
  if constexpr (std::is_same_v<T, Float16>) pair = {WithinFloat16(pair.x), WithinFloat16(pair.y)};
  return RoundPair<T>(pair.x, pair.y);
}

// A lane's pairs of a row of outputs, in T or in f32: pair(i) are elements first + i * step and the
// next one, i < kPairs and element < end.
template <typename T, int kPairs, typename Pair>
__device__ __forceinline__ void StorePairs(unsigned char* row, DType dtype, int first, int step,
                                           int end, Pair pair) {
  if (dtype == DType::kF32) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int element = first + i * step;
      if (element < end) *reinterpret_cast<float2*>(row + 4 * element) = pair(i);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int element = first + i * step;
      if (element < end) *reinterpret_cast<uint32_t*>(row + 2 * element) = PairWithin<T>(pair(i));
    }
  }
}

// kSharers: warps of the block, all of them, that have the same rows and their queries in common.
// kPadded: heads may have fewer than D elements; and scores a soft cap, windows be chunks, for
// which other kernels have no registers.
template <typename T, int D, bool kPadded, int kRowTiles = 1, int kSharers = 1>
struct WarpRows {
  // Where they take too many registers, queries lie in shared memory, of which a lane reads what it
  // wrote itself, or what the same lane of a sharer wrote.
  static constexpr bool kQueriesInShared = QueryBytes(D, kRowTiles) > 0;
  static constexpr int kQuerySteps = D / 16;
  static_assert(!kQueriesInShared ||
                QueryBytes(D, kRowTiles) == kRowTiles * kQuerySteps * kWarpThreads * sizeof(uint4));

  uint4 registers[kQueriesInShared ? 1 : kRowTiles * kQuerySteps];
  uint4* shared;                   // of the lane: 16 elements behind kWarpThreads others
  float out[kRowTiles][D / 8][4];  // sums of values by weights
  float largest[kRowTiles][2];     // score so far, a power of two
  float total[kRowTiles][2];       // of the lane's weights

  // Rows that do not exist are as the last one. `memory`: QueryBytes(D, kRowTiles) of the warp's
  // own, or of all sharers; then a barrier must follow.
  __device__ __forceinline__ void Begin(const SequenceRows& rows, int first, const TiledParams& p,
                                        unsigned char* memory) {
    shared = reinterpret_cast<uint4*>(memory) + static_cast<int>(threadIdx.x) % kWarpThreads;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      LoadQueries(rows, first + tile * kWarpRows, tile * kQuerySteps, p);
    }
    Clear();
  }

  // No key is seen yet.
  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < D / 8; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) out[tile][i][j] = 0;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        largest[tile][half] = -INFINITY;
        total[tile][half] = 0;
      }
    }
  }

  // Sixteen rows from `first` on as fragments `to` and behind it.
  __device__ __forceinline__ void LoadQueries(const SequenceRows& rows, int first, int to,
                                              const TiledParams& p) {
    const auto* const q = static_cast<const unsigned char*>(p.attention.q);
    const int row = first + static_cast<int>(threadIdx.x) % kWarpThreads / 4, last = rows.count - 1;
    const unsigned char* const of_half[2] = {
        rows.ElementsOf(q, p.attention.q_stride, p.attention.dtype, min(row, last), p),
        rows.ElementsOf(q, p.attention.q_stride, p.attention.dtype, min(row + 8, last), p)};
    const int width = WidthOf(p.attention);
    if (p.attention.dtype == DType::kF32) {
      LoadFragments(of_half, to, width, [](const unsigned char* of_row, int element) {
        return PairWithin<T>(*reinterpret_cast<const float2*>(of_row + 4 * element));
      });
    } else {
      LoadFragments(of_half, to, width, [](const unsigned char* of_row, int element) {
        return *reinterpret_cast<const uint32_t*>(of_row + 2 * element);
      });
    }
  }

  // Elements of a head.
  __device__ __forceinline__ static int WidthOf(const AttentionParams& p) {
    return kPadded ? static_cast<int>(p.head_dim) : D;
  }

  // load_pair(row, i): elements i and i + 1, where i is below `width`. There is no branch between
  // many loads: they are on their way together.
  template <typename LoadPair>
  __device__ __forceinline__ void LoadFragments(const unsigned char* const (&of_half)[2], int to,
                                                int width, LoadPair load_pair) {
    constexpr int kSteps = kQueriesInShared ? kQuerySteps / kSharers : kQuerySteps;
    constexpr int kAtOnce = kSteps < 8 ? kSteps : 8;
    static_assert(kSteps % kAtOnce == 0 && (!kQueriesInShared || kQuerySteps % kSharers == 0));
    const int first = kQueriesInShared && kSharers > 1
                          ? static_cast<int>(threadIdx.x) / kWarpThreads * kSteps
                          : 0;
#pragma unroll 1
    for (int begin = first; begin < first + kSteps; begin += kAtOnce) {
      uint32_t pairs[kAtOnce][4];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int element = (begin + k) * 16 + r / 2 * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
          if constexpr (kPadded) {
            const uint32_t pair = load_pair(of_half[r % 2], element < width ? element : 0);
            pairs[k][r] = element < width ? pair : 0;
          } else {
            pairs[k][r] = load_pair(of_half[r % 2], element);
          }
        }
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const uint4 fragment = {pairs[k][0], pairs[k][1], pairs[k][2], pairs[k][3]};
        if constexpr (kQueriesInShared) {
          shared[(to + begin + k) * kWarpThreads] = fragment;
        } else {
          registers[to + k] = fragment;
        }
      }
    }
  }

  // scores[tile][j][..] of the tile's rows and of keys 8j to 8j + 7.
  template <int kKeys>
  __device__ __forceinline__ void Score(const unsigned char* keys,
                                        float (&scores)[kRowTiles][kKeys / 8][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads, matrix = lane / 8;
    const int of_lane = ComputedHere(TileLayout<D>::Offset(matrix / 2 * 8 + lane % 8, matrix % 2));
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[tile][j][i] = 0;
      }
    }
#pragma unroll
    for (int k = 0; k < kQuerySteps; ++k) {
      uint32_t queries[kRowTiles][4];
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        const int at = tile * kQuerySteps + k;
        const uint4 fragment = kQueriesInShared ? shared[at * kWarpThreads] : registers[at];
        queries[tile][0] = fragment.x;
        queries[tile][1] = fragment.y;
        queries[tile][2] = fragment.z;
        queries[tile][3] = fragment.w;
      }
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        uint32_t b[4];  // of keys 16j to 16j + 7 and of the next eight
        LoadMatrices(b, keys + TileLayout<D>::PairOffset(of_lane, j, k));
        const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
          Mma16x8x16<T>(scores[tile][2 * j], queries[tile], low);
          Mma16x8x16<T>(scores[tile][2 * j + 1], queries[tile], high);
        }
      }
    }
  }

  // Scores of keys from `first_key` on that a row does not see become -inf. end_of(i): of the
  // lane's row 8i + lane / 4.
  template <int kKeys, typename EndOf>
  __device__ __forceinline__ static void Hide(float (&scores)[kRowTiles][kKeys / 8][4],
                                              int first_key, EndOf end_of,
                                              const AttentionParams& p) {
    const int first_of_lane = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int row = 0; row < 2 * kRowTiles; ++row) {
      const int row_end = end_of(row);
      const int end = row_end - first_of_lane;
      const int begin = end - (kPadded ? KeysSeenBy(row_end, p) : WindowOf(p));
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = j * 8 + i;
          float& score = scores[row / 2][j][row % 2 * 2 + i];
          if (key < begin || key >= end) score = -INFINITY;
        }
      }
    }
  }

  // Bends scores, which are still to be multiplied by the scale, to stay within the cap.
  template <int kKeys>
  __device__ __forceinline__ static void Cap(float (&scores)[kRowTiles][kKeys / 8][4],
                                             const AttentionParams& p) {
    constexpr float kTwoLog2OfE = 2.88539008f;
    const float cap = p.soft_cap / p.scale, powers = kTwoLog2OfE * p.scale / p.soft_cap;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (float& score : scores[tile][j]) {
          score = cap - 2 * cap / (Exp2(score * powers) + 1);  // cap * tanh(score / cap)
        }
      }
    }
  }

  // Turns scores into weights, and brings the sums to the base of the largest score. A tile of
  // which a row sees nothing leaves the row's bits as they are.
  template <int kKeys>
  __device__ __forceinline__ void Weigh(float (&scores)[kRowTiles][kKeys / 8][4],
                                        float scale_log2) {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = -INFINITY;
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
          most = fmaxf(most, fmaxf(scores[tile][j][2 * half], scores[tile][j][2 * half + 1]));
        }
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
        most = fmaxf(largest[tile][half], most * scale_log2);
        const float base = most == -INFINITY ? 0 : most;
        const float rescale = Exp2(largest[tile][half] - base);
        largest[tile][half] = most;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& score = scores[tile][j][2 * half + i];
            score = Exp2(score * scale_log2 - base);
            sum += score;
          }
        }
        total[tile][half] = total[tile][half] * rescale + sum;
#pragma unroll
        for (int i = 0; i < D / 8; ++i) {
          out[tile][i][2 * half] *= rescale;
          out[tile][i][2 * half + 1] *= rescale;
        }
      }
    }
  }

  // Weights as the left operand of products with values.
  template <int kKeys>
  __device__ __forceinline__ static void RoundWeights(
      const float (&scores)[kRowTiles][kKeys / 8][4],
      uint32_t (&weights)[kRowTiles][kKeys / 16][4]) {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int k = 0; k < kKeys / 16; ++k) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const float(&of_keys)[4] = scores[tile][2 * k + r / 2];
          weights[tile][k][r] = RoundPair<T>(of_keys[r % 2 * 2], of_keys[r % 2 * 2 + 1]);
        }
      }
    }
  }

  // The other lanes' weights of the same rows. Behind the last tile.
  __device__ __forceinline__ void AddTotals() {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        total[tile][half] += __shfl_xor_sync(kAllLanes, total[tile][half], 1);
        total[tile][half] += __shfl_xor_sync(kAllLanes, total[tile][half], 2);
      }
    }
  }

  // The weighted means of row 8 * half + lane / 4 of a tile, to the row's outputs. After Attend.
  __device__ __forceinline__ void Store(int tile, int half, int64_t head, const AttentionParams& p,
                                        unsigned char* row) const {
    const DType dtype = p.out_dtype;
    const float factor = 1 / (total[tile][half] + SinkWeight(p, head, largest[tile][half]));
    const int first = static_cast<int>(threadIdx.x) % 4 * 2;
    StorePairs<T, D / 8>(row, dtype, first, 8, WidthOf(p), [&](int i) {
      return float2{out[tile][i][2 * half] * factor, out[tile][i][2 * half + 1] * factor};
    });
  }

  // The same row's sums, as they are, for LaunchCombine.
  __device__ __forceinline__ void StorePartial(int tile, int half, const AttentionParams& p,
                                               float* partial) const {
    const int of_lane = static_cast<int>(threadIdx.x) % 4, width = WidthOf(p);
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      const int element = i * 8 + of_lane * 2;
      if (kPadded && element >= width) continue;
      *reinterpret_cast<float2*>(partial + element) = {out[tile][i][2 * half],
                                                       out[tile][i][2 * half + 1]};
    }
    if (of_lane == 0) {
      *reinterpret_cast<float2*>(partial + width) = {largest[tile][half], total[tile][half]};
    }
  }

  // What Attend left of a split for a row, of a tile and half: its outputs, where it sees no other
  // of `splits`. wave_row: its place among the rows of the wave.
  __device__ __forceinline__ void StoreSplit(int tile, int half, const SequenceRows& rows, int row,
                                             int wave_row, int split, const Splits& splits,
                                             const TiledParams& p) const {
    const int64_t head = rows.HeadOf(row, p);
    if (splits.count() == 1) {
      Store(tile, half, head, p.attention, rows.OutputsOf(row, p));
    } else {
      StorePartial(tile, half, p.attention, PartialOf(wave_row, head, split, p));
    }
  }

  template <int kKeys>
  __device__ __forceinline__ void AddValues(const unsigned char* values,
                                            const uint32_t (&weights)[kRowTiles][kKeys / 16][4]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads, matrix = lane / 8;
    const int of_lane = ComputedHere(TileLayout<D>::Offset(matrix % 2 * 8 + lane % 8, matrix / 2));
    // Some elements at a time, by all keys: as many sums as hide a product's latency, and few
    // places.
    constexpr int kAtOnce = D % 32 == 0 ? 2 : 1;
#pragma unroll
    for (int first = 0; first < D / 16; first += kAtOnce) {
#pragma unroll
      for (int k = 0; k < kKeys / 16; ++k) {
#pragma unroll
        for (int j = first; j < first + kAtOnce; ++j) {
          uint32_t b[4];  // of elements 16j to 16j + 7 and of the next eight
          LoadMatricesTransposed(b, values + TileLayout<D>::PairOffset(of_lane, k, j));
          const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
          for (int tile = 0; tile < kRowTiles; ++tile) {
            Mma16x8x16<T>(out[tile][2 * j], weights[tile][k], low);
            Mma16x8x16<T>(out[tile][2 * j + 1], weights[tile][k], high);
          }
        }
      }
    }
  }

  // The tiles of a ring, of which the first begins with key first * kKeys. `works`: whether the
  // warp has a row; it takes part in the loads in any case. end_of: see Hide. Of chunks each tile
  // may begin before what a row sees.
  template <int kKeys, int kThreads, typename EndOf>
  __device__ __forceinline__ void Attend(TileRing<D, kPadded, kKeys, kThreads>& ring, int first,
                                         int step, int tiles, bool works, const KeysSeen& seen,
                                         EndOf end_of, const TiledParams& p) {
    const AttentionParams& a = p.attention;
    for (int i = 0; i < tiles; ++i) {
      const int first_key = (first + i * step) * kKeys;
      // Whether a row of the warp sees one of these keys.
      const bool sees =
          works && first_key < seen.last_end && first_key + kKeys > seen.first_end - seen.keys;
      const unsigned char* const keys = ring.Next();
      uint32_t weights[kRowTiles][kKeys / 16][4];
      if (sees) {
        float scores[kRowTiles][kKeys / 8][4];
        Score<kKeys>(keys, scores);
        if (kPadded && a.soft_cap > 0) Cap<kKeys>(scores, a);
        if ((kPadded && a.chunked) || first_key < seen.last_end - seen.keys ||
            first_key + kKeys > seen.first_end) {
          Hide<kKeys>(scores, first_key, end_of, a);
        }
        Weigh<kKeys>(scores, p.scale_log2);
        RoundWeights<kKeys>(scores, weights);
      }
      const unsigned char* const values = ring.Next();
      if (sees) AddValues<kKeys>(values, weights);
    }
    AddTotals();
  }
};

// launch(T{}, std::integral_constant<int, D>{}, std::bool_constant<kPadded>{}) with the types and
// the head size that the cache has. `general`: as in TensorAttentionExtents.
template <typename LaunchAs>
cudaError_t WithCacheOf(const AttentionParams& attention, bool general, LaunchAs launch) {
  if (!HasTensorAttention(attention.head_dim)) return cudaErrorInvalidValue;
  const auto with_size = [&](auto type) {
    using Padded = std::true_type;
    switch (general ? 0 : attention.head_dim) {
      case 64: return launch(type, std::integral_constant<int, 64>{}, std::false_type{});
      case 80: return launch(type, std::integral_constant<int, 80>{}, std::false_type{});
      case 96: return launch(type, std::integral_constant<int, 96>{}, std::false_type{});
      case 128: return launch(type, std::integral_constant<int, 128>{}, std::false_type{});
      case 256: return launch(type, std::integral_constant<int, 256>{}, std::false_type{});
      default:
        return PaddedHead(attention.head_dim, general) == 128
                   ? launch(type, std::integral_constant<int, 128>{}, Padded{})
                   : launch(type, std::integral_constant<int, 256>{}, Padded{});
    }
  };
  switch (attention.cache_dtype) {
    case DType::kBF16: return with_size(BFloat16{});
    case DType::kF16: return with_size(Float16{});
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
