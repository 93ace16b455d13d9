// What kernels of attention on tensor cores are launched with. For .cu files.
#pragma once

#include "kernels/cuda/attention/tensor_attention.h"
#include "kernels/cuda/launch/attention_shapes.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// The quotient by a number that the host knows, without a division: exact for dividends from 0 to
// 2^31 - 1 (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994).
struct Divisor {
  uint32_t factor;  // 2^(31 + shift) by the number, rounded up
  int shift;        // logarithm of the number, rounded up
  int number;

  __host__ __device__ __forceinline__ int Of(int dividend) const {
    const uint64_t product = uint64_t{static_cast<uint32_t>(dividend)} * factor;
    return static_cast<int>(static_cast<uint32_t>(product >> 31) >> shift);
  }
};

// `number`: 1 to 2^30.
inline Divisor DivisorOf(int64_t number) {
  int shift = 0;
  while ((int64_t{1} << shift) < number) ++shift;
  const int64_t power = int64_t{1} << (31 + shift);
  return {static_cast<uint32_t>((power + number - 1) / number), shift, static_cast<int>(number)};
}

// What a launch adds to the parameters.
struct TiledParams {
  AttentionParams attention;
  float* partials;
  float scale_log2;      // of scores as powers of two
  Divisor group;         // query heads of a kv head
  int slots;             // of a ring of tiles
  int splits;            // for which there is room in `partials`
  Divisor block_tokens;  // as in `attention`
};

inline TiledParams TiledParamsOf(const TensorAttentionParams& params, int slots) {
  const AttentionParams& attention = params.attention;
  constexpr float kLog2OfE = 1.44269504f;
  return {attention,
          params.partials,
          attention.scale * kLog2OfE,
          DivisorOf(attention.heads / attention.kv_heads),
          slots,
          MaxSplits(params.max_context),
          DivisorOf(attention.block_tokens)};
}

inline TensorAttentionExtents ExtentsOf(const TensorAttentionParams& params) {
  const AttentionParams& attention = params.attention;
  return {attention.rows,     attention.sequences, attention.heads,
          attention.kv_heads, attention.head_dim,  params.max_context};
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
