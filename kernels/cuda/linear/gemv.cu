// Few rows: a warp sums some columns, its lanes 16 bytes of weights each at a time (8 of int4), so
// that weights pass once and at full width. Inputs are read by all warps, from the caches.
#include "kernels/cuda/launch/linear_shapes.h"
#include "kernels/cuda/linear/half_pairs.h"
#include "kernels/cuda/linear/linear_kernels.h"
#include "kernels/cuda/linear/store_sum.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// Where the inputs of a lane's `count` weights stand from place k on: for 16-bit weights beside each
// other. For codes (device/weight_rows.h) half a block of 32: of each 8 inputs, the first or the
// last 4.
template <bool codes>
__device__ __forceinline__ int64_t FirstInput(int64_t k) {
  return codes ? k / 32 * 32 + k % 32 / 4 : k;
}
template <bool codes>
__device__ __forceinline__ constexpr int InputOffset(int i) {
  return codes ? i / 4 * 8 + i % 4 : i;
}

// A lane's inputs of a row from place k on, zeros beyond the depth.
template <typename T, bool codes, int count>
__device__ __forceinline__ void LoadInputs(const LinearParams& p, const T* row, int64_t k,
                                           bool vectors, float* out) {
  const int64_t first = FirstInput<codes>(k);
  if (vectors && first + InputOffset<codes>(count - 1) < p.depth) {
    if constexpr (codes && sizeof(T) == 2) {
#pragma unroll
      for (int i = 0; i < count; i += 4) {
        const uint2 two = *reinterpret_cast<const uint2*>(row + first + InputOffset<codes>(i));
        float eight[8];
        Unpack<T>({two.x, two.y, 0, 0}, eight);
#pragma unroll
        for (int j = 0; j < 4; ++j) out[i + j] = eight[j];
      }
    } else {
      constexpr int kOfVector = 16 / sizeof(T);
#pragma unroll
      for (int i = 0; i < count; i += kOfVector) {
        const T* at = row + first + InputOffset<codes>(i);
        Unpack<T>(*reinterpret_cast<const uint4*>(at), out + i);
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const int64_t at = first + InputOffset<codes>(i);
    out[i] = at < p.depth ? AsFloat(row[at]) : 0.0f;
  }
}

// Sums of `count` values over the lanes of a warp, in the order of a tree. Lanes hand half of their
// values over while they have more than one: values[0] is then that of the value whose number this
// returns, on all lanes that share it.
template <int count>
__device__ __forceinline__ int SumOverLanes(float (&values)[count], int lane) {
  int left = count, first = 0;
#pragma unroll
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    const bool upper = (lane & mask) != 0;
    if (left > 1) {
      left /= 2;
#pragma unroll
      for (int i = 0; i < count / 2; ++i) {
        if (i >= left) break;
        const float given = upper ? values[i] : values[i + left];
        const float kept = upper ? values[i + left] : values[i];
        values[i] = kept + __shfl_xor_sync(kAllLanes, given, mask);
      }
      first += upper ? left : 0;
    } else {
      values[0] += __shfl_xor_sync(kAllLanes, values[0], mask);
    }
  }
  return first;
}

// What a lane loads at once of a row's weights, and its numbers before they are scaled, in the order
// of LoadInputs.
template <typename W>
struct Chunk {
  static constexpr int kWeights = 8;
  static constexpr bool kScaled = false;
  uint4 packed;

  __device__ __forceinline__ void Load(const char* row, int64_t k) {
    packed = *reinterpret_cast<const uint4*>(row + k * sizeof(W));
  }
  // Returns the scale; `group` is its address. Without scales it is not read.
  __device__ __forceinline__ float Read(const char*, float* out) const {
    Unpack<W>(packed, out);
    return 1.0f;
  }
};

template <>
struct Chunk<int8_t> {
  static constexpr int kWeights = 16;
  static constexpr bool kScaled = true;
  uint4 packed;

  __device__ __forceinline__ void Load(const char* row, int64_t k) {
    packed = *reinterpret_cast<const uint4*>(row + k);
  }
  __device__ __forceinline__ float Read(const char* group, float* out) const {
    const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int place = i % 4 / 2 * 8 + i / 4 * 2 + i % 2;
      out[i] = CodeAsFloat(words[place / 4] >> (place % 4 * 8));
    }
    return *reinterpret_cast<const float*>(group);
  }
};

template <>
struct Chunk<Nibbles> {
  static constexpr int kWeights = 16;
  static constexpr bool kScaled = true;
  uint2 packed;

  __device__ __forceinline__ void Load(const char* row, int64_t k) {
    packed = *reinterpret_cast<const uint2*>(row + k / 2);
  }
  __device__ __forceinline__ float Read(const char* group, float* out) const {
    const uint32_t word = *reinterpret_cast<const uint32_t*>(group);
    const float base = NibbleBase(word);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const uint32_t codes = i % 4 < 2 ? packed.x : packed.y;
      out[i] = NibbleAsFloat(codes >> (i / 4 * 4 + i % 2 * 16), base);
    }
    return NibbleScale(word);
  }
};

template <typename T, typename W, int kRows>
__global__ void GemvKernel(LinearParams p) {
  using WeightChunk = Chunk<W>;
  constexpr int kColumns = GemvColumns(kRows), kValues = kRows * kColumns;
  constexpr int kChunk = WeightChunk::kWeights;
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t first_column =
      (static_cast<int64_t>(blockIdx.x) * kGemvWarps + threadIdx.y) * kColumns;
  const int64_t expert = blockIdx.y;
  const int64_t begin = p.expert_offsets == nullptr ? 0 : p.expert_offsets[expert];
  const int64_t end = p.expert_offsets == nullptr ? p.rows : p.expert_offsets[expert + 1];
  if (first_column >= p.columns) return;  // the whole warp
  const char* weights[kColumns];
  for (int c = 0; c < kColumns; ++c) {
    const int64_t column = min(first_column + c, p.columns - 1);  // beyond: not written
    weights[c] =
        static_cast<const char*>(p.weights) + expert * p.expert_bytes + column * p.weight_row_bytes;
  }
  const bool vectors =
      p.in_stride * sizeof(T) % 16 == 0 && reinterpret_cast<uintptr_t>(p.in) % 16 == 0;
  // Codes stand in whole windows.
  const int64_t places = WeightChunk::kScaled ? (p.depth + 31) / 32 * 32 : p.depth;
  for (int64_t first_row = begin; first_row < end; first_row += kRows) {
    const T* rows[kRows];
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = min(first_row + r, end - 1);  // beyond: not written
      const int64_t source = p.source_rows == nullptr ? row : p.source_rows[row];
      rows[r] = static_cast<const T*>(p.in) + source * p.in_stride;
    }
    float sums[kValues] = {};
// Two loads under way where registers are left for them.
#pragma unroll(kRows >= 4 ? 1 : 2)
    for (int64_t k = lane * kChunk; k < places; k += kWarpThreads * kChunk) {
      WeightChunk chunks[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) chunks[c].Load(weights[c], k);
      uint32_t group = 0;
      if constexpr (WeightChunk::kScaled) {
        group = static_cast<uint32_t>(k) / static_cast<uint32_t>(p.group_size);
      }
      float factors[kColumns][kChunk];
      float scales[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const char* of_group = weights[c] + p.scales_offset_bytes + group * sizeof(float);
        scales[c] = chunks[c].Read(of_group, factors[c]);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float inputs[kChunk];
        LoadInputs<T, WeightChunk::kScaled, kChunk>(p, rows[r], k, vectors, inputs);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          float& sum = sums[r * kColumns + c];
          float part = WeightChunk::kScaled ? 0.0f : sum;
#pragma unroll
          for (int i = 0; i < kChunk; ++i) part += inputs[i] * factors[c][i];
          if constexpr (WeightChunk::kScaled) part = sum + part * scales[c];
          sum = part;
        }
      }
    }
    const int value = SumOverLanes(sums, lane);
    const int64_t row = first_row + value / kColumns;
    if (lane % (kWarpThreads / kValues) == 0 && row < end) {
      StoreSum(p, row, first_column + value % kColumns, sums[0]);
    }
  }
}

template <typename T, typename W>
cudaError_t LaunchRows(const LinearParams& p, cudaStream_t stream) {
  const int rows = GemvRowsAtOnce(p.rows, p.experts);
  const LaunchShape shape = GemvShape(rows, p.columns, p.experts);
  switch (rows) {
    case 1: return Launch(GemvKernel<T, W, 1>, shape, stream, p);
    case 2: return Launch(GemvKernel<T, W, 2>, shape, stream, p);
    case 4: return Launch(GemvKernel<T, W, 4>, shape, stream, p);
    default: return Launch(GemvKernel<T, W, 8>, shape, stream, p);
  }
}

// Inputs of 16 bits meet weights of the same type, int8 or int4.
template <typename T>
cudaError_t LaunchHalf(const LinearParams& p, DType type, cudaStream_t stream) {
  if (p.weight_dtype == type) return LaunchRows<T, T>(p, stream);
  if (p.weight_dtype == DType::kI4) return LaunchRows<T, Nibbles>(p, stream);
  return p.weight_dtype == DType::kI8 ? LaunchRows<T, int8_t>(p, stream) : cudaErrorInvalidValue;
}

cudaError_t LaunchFloat(const LinearParams& p, cudaStream_t stream) {
  switch (p.weight_dtype) {
    case DType::kBF16: return LaunchRows<float, BFloat16>(p, stream);
    case DType::kF16: return LaunchRows<float, Float16>(p, stream);
    case DType::kI8: return LaunchRows<float, int8_t>(p, stream);
    case DType::kI4: return LaunchRows<float, Nibbles>(p, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t LaunchGemv(const LinearParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.columns == 0) return cudaSuccess;
  const bool aligned = reinterpret_cast<uintptr_t>(params.weights) % 16 == 0 &&
                       params.weight_row_bytes % 16 == 0 && params.expert_bytes % 16 == 0;
  if (!aligned) return cudaErrorInvalidValue;
  switch (params.in_dtype) {
    case DType::kF32: return LaunchFloat(params, stream);
    case DType::kBF16: return LaunchHalf<BFloat16>(params, DType::kBF16, stream);
    case DType::kF16: return LaunchHalf<Float16>(params, DType::kF16, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
