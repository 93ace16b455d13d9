// Sixteen query rows of a warp against tiles of sixteen keys and values in 8 bits: what is rounded
// to codes meets tensor cores as 16-bit numbers, which hold every code exactly. For .cu files.
//
// With g = lane / 4 and t = lane % 4 (the fragments of warp_ops.h), products may take dimensions
// and keys in any order, as long as both operands do. The orders here are those in which each lane
// reads whole words of codes, from unlike banks:
//   dimensions of scores, of step k: the word t * D / 16 + k has those of lane t;
//   column c of the keys 8j to 8j + 7 is key 8j + c / 2 + c % 2 * 4: lane t has keys t and t + 4;
//   columns of sums: lane g reads the words g * D / 32 + i of values, so that column g of the
//   product n = 4i + byte is dimension g * D / 8 + n.
#pragma once

#include <type_traits>

#include "kernels/cuda/codes.h"
#include "kernels/cuda/launch/code_attention_shapes.h"
#include "kernels/cuda/plain/attention_kernels.h"
#include "kernels/cuda/platform.h"
#include "kernels/cuda/warp_ops.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// Pairs of codes as pairs of T: `low` and `high` have them in the lowest byte of each half, and
// anything above. C: int8_t, or Float8; kUnit: what a code's pair must be multiplied by to be it.
template <typename T, typename C>
struct CodePairs;

// bf16 has every number of 128 and seven bits: less 128 or, where the code is negative, 256, it is
// the code.
template <>
struct CodePairs<BFloat16, int8_t> {
  static constexpr float kUnit = 1.0f;
  __device__ __forceinline__ static uint32_t Of(uint32_t codes) {
    const uint32_t rest = MaskAndOr(codes, 0x007f007fu, 0x43004300u);
    const uint32_t less = (~codes & 0x00800080u) ^ 0xc380c380u;
    return AddPairs<BFloat16>(rest, less);
  }
};

// f16 has 1024 and any byte.
template <>
struct CodePairs<Float16, int8_t> {
  static constexpr float kUnit = 1.0f;
  __device__ __forceinline__ static uint32_t Of(uint32_t codes) {
    const uint32_t bytes = MaskAndOr(codes ^ 0x00800080u, 0x00ff00ffu, 0x64006400u);
    return AddPairs<Float16>(bytes, 0xe480e480u);  // less 1152
  }
};

// The exponent of bf16 has a bias that is 120 higher than e4m3's, and the rest stands alike.
template <>
struct CodePairs<BFloat16, Float8> {
  static constexpr float kUnit = 1.0f;
  __device__ __forceinline__ static uint32_t Of(uint32_t codes) {
    const uint32_t sign = (codes & 0x00800080u) << 8;
    return MultiplyPairs<BFloat16>(sign | (codes & 0x007f007fu) << 4, 0x7b807b80u);  // 2^120
  }
};

// The exponent of f16 has one that is 8 higher.
template <>
struct CodePairs<Float16, Float8> {
  static constexpr float kUnit = 256.0f;
  __device__ __forceinline__ static uint32_t Of(uint32_t codes) {
    const uint32_t sign = (codes & 0x00800080u) << 8;
    return sign | (codes & 0x007f007fu) << 7;
  }
};

// What a launch adds to the parameters.
struct CodeLaunch {
  AttentionParams attention;
  float* partials;
  float scale_log2;                          // of scores as powers of two
  int group;                                 // query heads of a kv head
  int slots;                                 // tiles of a warp in shared memory
  int first_sequence, sequences, rows_each;  // of the wave; of many rows: all, and 0
  int splits;                                // for which a row has room in `partials`
  DType out_dtype;
};

// The rows of one kv head in one sequence: row i is head i % group of the group at the sequence's
// row i / group.
struct CodeSequence {
  int sequence, kv_head;
  int first_row;  // of the call
  int count;      // rows times group
  int first_position;

  __device__ __forceinline__ static CodeSequence Of(int sequence, int kv_head,
                                                    const CodeLaunch& p) {
    const int first = p.attention.query_starts[sequence];
    const int rows = p.attention.query_starts[sequence + 1] - first;
    return {sequence, kv_head, first, rows * p.group, p.attention.context_lengths[sequence] - rows};
  }
  __device__ __forceinline__ int Row(int row, const CodeLaunch& p) const {
    return min(row, count - 1) / p.group;
  }
  // Keys that a row sees: of [begin, end).
  __device__ __forceinline__ int End(int row, const CodeLaunch& p) const {
    return first_position + Row(row, p) + 1;
  }
  __device__ __forceinline__ static int Begin(int end, const CodeLaunch& p) {
    const int64_t window = p.attention.window;
    if (window == 0 || end < window) return 0;
    const auto keys = static_cast<int>(window);
    return p.attention.chunked ? (end - 1) / keys * keys : end - keys;
  }
  __device__ __forceinline__ int64_t Head(int row, const CodeLaunch& p) const {
    return int64_t{kv_head} * p.group + min(row, count - 1) % p.group;
  }
  // The first element of a row of [rows, heads, head_dim] with a row stride.
  __device__ __forceinline__ int64_t Element(int row, int64_t stride, const CodeLaunch& p) const {
    return (first_row + Row(row, p)) * stride + Head(row, p) * p.attention.head_dim;
  }
};

__device__ __forceinline__ float ElementAt(const void* base, DType dtype, int64_t element) {
  switch (dtype) {
    case DType::kBF16: return AsFloat(static_cast<const BFloat16*>(base)[element]);
    case DType::kF16: return AsFloat(static_cast<const Float16*>(base)[element]);
    default: return static_cast<const float*>(base)[element];
  }
}

__device__ __forceinline__ void StoreElement(void* base, DType dtype, int64_t element,
                                             float value) {
  switch (dtype) {
    case DType::kBF16: static_cast<BFloat16*>(base)[element] = RoundTo<BFloat16>(value); break;
    case DType::kF16: static_cast<Float16*>(base)[element] = RoundTo<Float16>(value); break;
    default: static_cast<float*>(base)[element] = value;
  }
}

template <typename T, typename C, int D>
struct CodeWarp {
  static constexpr int kSteps = D / 16, kWords = D / 32, kSums = D / 8;
  static constexpr int kRowBytes = D + 4, kPlaneBytes = kCodeTileKeys * kRowBytes;
  static constexpr int kTileBytes = 2 * kPlaneBytes;
  // Weights are multiplied by the scales of values before they are rounded: to f16 by this, too,
  // where they would not be among its normal numbers. Beyond f16 they are with values of more than
  // 130,000, which no f16 is.
  static constexpr bool kSmallScales = std::is_same_v<T, Float16> && std::is_same_v<C, int8_t>;
  static constexpr float kWeightUnit = kSmallScales ? 64.0f : 1.0f;

  uint4* queries;  // of the lane, a step behind kWarpThreads others
  unsigned char* tiles;
  float out[kSums][4];
  float largest[2], total[2];  // by half: row g, and g + 8

  __device__ __forceinline__ static int Lane() {
    return static_cast<int>(threadIdx.x) % kWarpThreads;
  }

  // `memory`: CodeQueryBytes and the slots of the warp.
  __device__ __forceinline__ CodeWarp(unsigned char* memory)
      : queries(reinterpret_cast<uint4*>(memory) + Lane()), tiles(memory + CodeQueryBytes(D)) {
#pragma unroll
    for (int n = 0; n < kSums; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n][i] = 0;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = -INFINITY;
      total[half] = 0;
    }
  }

  // Sixteen rows from `first` on; those that do not exist are as the last one.
  __device__ __forceinline__ void LoadQueries(const CodeSequence& rows, int first,
                                              const CodeLaunch& p) {
    const AttentionParams& a = p.attention;
    const int t = Lane() % 4;
    int64_t of_half[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      of_half[half] = rows.Element(first + Lane() / 4 + 8 * half, a.q_stride, p);
    const auto pair = [&](int half, int d) {
      return PairWithin(ElementAt(a.q, a.dtype, of_half[half] + d),
                        ElementAt(a.q, a.dtype, of_half[half] + d + 1));
    };
    for (int k = 0; k < kSteps; ++k) {
      const int d = 4 * (t * kSteps + k);
      queries[k * kWarpThreads] = {pair(0, d), pair(1, d), pair(0, d + 2), pair(1, d + 2)};
    }
  }

  // The tile that begins with `key`, of the cache to a slot. Its block is that of the nearest key
  // of [begin, end).
  __device__ __forceinline__ void Copy(const CodeSequence& rows, int key, int begin, int slot,
                                       const CodeLaunch& p) const {
    const AttentionParams& a = p.attention;
    const auto block_tokens = static_cast<int>(a.block_tokens);
    const int seen = max(key, begin);
    const int64_t block = a.block_tables[rows.sequence * a.table_stride + seen / block_tokens];
    const int64_t at = (block * block_tokens + key % block_tokens) * kRowBytes;
    unsigned char* const to = tiles + slot * kTileBytes;
    const auto* const keys =
        static_cast<const unsigned char*>(a.keys) + rows.kv_head * a.keys_stride;
    const auto* const values =
        static_cast<const unsigned char*>(a.values) + rows.kv_head * a.values_stride;
    for (int byte = Lane() * 16; byte < kPlaneBytes; byte += kWarpThreads * 16) {
      CopyAsync16(to + byte, keys + at + byte, true);
      CopyAsync16(to + kPlaneBytes + byte, values + at + byte, true);
    }
  }

  __device__ __forceinline__ static uint32_t WordAt(const unsigned char* plane, int key, int word) {
    return *reinterpret_cast<const uint32_t*>(plane + key * kRowBytes + word * 4);
  }
  __device__ __forceinline__ static float ScaleAt(const unsigned char* plane, int key) {
    return *reinterpret_cast<const float*>(plane + key * kRowBytes + D);
  }

  // Products with the keys, times their scales, [keys 8j + t + 4i][half].
  __device__ __forceinline__ void Score(const unsigned char* keys, float scale,
                                        float (&scores)[2][4]) const {
    const int g = Lane() / 4, t = Lane() % 4, key = g / 2 + g % 2 * 4;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[j][i] = 0;
    }
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const uint4 fragment = queries[k * kWarpThreads];
      const uint32_t a[4] = {fragment.x, fragment.y, fragment.z, fragment.w};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint32_t word = WordAt(keys, 8 * j + key, t * kSteps + k);
        const uint32_t b[2] = {CodePairs<T, C>::Of(__byte_perm(word, 0, 0x4140)),
                               CodePairs<T, C>::Of(__byte_perm(word, 0, 0x4342))};
        Mma16x8x16<T>(scores[j], a, b);
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float of_key = ScaleAt(keys, 8 * j + t + 4 * i) * (scale * CodePairs<T, C>::kUnit);
        scores[j][i] *= of_key;
        scores[j][2 + i] *= of_key;
      }
    }
  }

  // Bends scores, which are powers of two, to stay within the cap.
  __device__ __forceinline__ static void Cap(float soft_cap, float (&scores)[2][4]) {
    constexpr float kLog2OfE = 1.44269504f;
    const float cap = soft_cap * kLog2OfE, powers = 2 / soft_cap;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (float& score : scores[j]) score = cap - 2 * cap / (Exp2(score * powers) + 1);
    }
  }

  // Scores to weights times the scales of values, as the left operand. ends: of the lane's rows.
  __device__ __forceinline__ void Weigh(int first_key, const int (&begins)[2], const int (&ends)[2],
                                        const unsigned char* values, float (&scores)[2][4],
                                        uint32_t (&weights)[4]) {
    const int t = Lane() % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = -INFINITY;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = first_key + 8 * j + t + 4 * i;
          float& score = scores[j][2 * half + i];
          if (key < begins[half] || key >= ends[half]) score = -INFINITY;
          most = fmaxf(most, score);
        }
      }
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
      most = fmaxf(largest[half], most);
      const float base = most == -INFINITY ? 0 : most;
      const float rescale = Exp2(largest[half] - base);
      largest[half] = most;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float scaled[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float weight = Exp2(scores[j][2 * half + i] - base);
          sum += weight;
          // A key that is not seen may have any scale.
          scaled[i] = weight == 0 ? 0
                                  : weight * ScaleAt(values, 8 * j + t + 4 * i) *
                                        (kWeightUnit * CodePairs<T, C>::kUnit);
        }
        weights[2 * j + half] = PairWithin(scaled[0], scaled[1]);
      }
      total[half] = total[half] * rescale + sum;
#pragma unroll
      for (int n = 0; n < kSums; ++n) {
        out[n][2 * half] *= rescale;
        out[n][2 * half + 1] *= rescale;
      }
    }
  }

  __device__ __forceinline__ void AddValues(const unsigned char* values,
                                            const uint32_t (&weights)[4]) {
    const int g = Lane() / 4, t = Lane() % 4;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      uint32_t words[4];  // of keys t, t + 4, t + 8, t + 12
#pragma unroll
      for (int r = 0; r < 4; ++r) words[r] = WordAt(values, t + 4 * r, g * kWords + i);
#pragma unroll
      for (int byte = 0; byte < 4; ++byte) {
        const uint32_t digits = static_cast<uint32_t>(byte | (4 + byte) << 8);
        const uint32_t b[2] = {CodePairs<T, C>::Of(__byte_perm(words[0], words[1], digits)),
                               CodePairs<T, C>::Of(__byte_perm(words[2], words[3], digits))};
        Mma16x8x16<T>(out[4 * i + byte], weights, b);
      }
    }
  }

  // The tiles of [begin, end), of which a row sees a part. All lanes together.
  __device__ __forceinline__ void Attend(const CodeSequence& rows, int first, int begin, int end,
                                         const CodeLaunch& p) {
    const int first_tile = begin / kCodeTileKeys;
    const int count = (end + kCodeTileKeys - 1) / kCodeTileKeys - first_tile;
    int begins[2], ends[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      ends[half] = rows.End(first + Lane() / 4 + 8 * half, p);
      begins[half] = rows.Begin(ends[half], p);
    }
    int loaded = 0;
    const auto load = [&] {
      if (loaded < count)
        Copy(rows, (first_tile + loaded) * kCodeTileKeys, begin, loaded % p.slots, p);
      ++loaded;
      CommitCopies();
    };
    for (int i = 1; i < p.slots; ++i) load();
    for (int tile = 0; tile < count; ++tile) {
      static_assert(kMinCodeSlots == 2 && kMaxCodeSlots == 4);
      if (p.slots == 2) {
        WaitCopies<0>();
      } else if (p.slots == 3) {
        WaitCopies<1>();
      } else {
        WaitCopies<2>();
      }
      __syncwarp();  // all have what they copied, and are done with what is overwritten now
      load();
      const unsigned char* const keys = tiles + tile % p.slots * kTileBytes;
      const unsigned char* const values = keys + kPlaneBytes;
      float scores[2][4];
      uint32_t weights[4];
      Score(keys, p.scale_log2, scores);
      if (p.attention.soft_cap > 0) Cap(p.attention.soft_cap, scores);
      Weigh((first_tile + tile) * kCodeTileKeys, begins, ends, values, scores, weights);
      AddValues(values, weights);
    }
    WaitCopies<0>();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      total[half] += __shfl_xor_sync(kAllLanes, total[half], 1);
      total[half] += __shfl_xor_sync(kAllLanes, total[half], 2);
    }
  }

  // visit(d, sum) with the lane's sums of a half's row, in units of a weight and a code.
  template <typename Visit>
  __device__ __forceinline__ void ForSums(int half, Visit visit) const {
    const int t = Lane() % 4;
#pragma unroll
    for (int column = 0; column < 2; ++column) {
#pragma unroll
      for (int n = 0; n < kSums; ++n)
        visit((2 * t + column) * kSums + n, out[n][2 * half + column] * (1 / kWeightUnit));
    }
  }

 private:
  // Both as T; beyond f16 is its largest number.
  __device__ __forceinline__ static uint32_t PairWithin(float low, float high) {
    if constexpr (std::is_same_v<T, Float16>) {
      return RoundPair<T>(WithinFloat16(low), WithinFloat16(high));
    } else {
      return RoundPair<T>(low, high);
    }
  }
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
