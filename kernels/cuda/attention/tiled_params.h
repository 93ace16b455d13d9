// What kernels of attention on tensor cores are launched with. For .cu files.
#pragma once

#include "kernels/cuda/attention/tensor_attention.h"
#include "kernels/cuda/launch/attention_shapes.h"
#include "kernels/cuda/launch/divisor.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

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
