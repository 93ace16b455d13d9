// What kernels of attention on tensor cores are launched with. For .cu files.
#pragma once

#include "kernels/cuda/attention/tensor_attention.h"
#include "kernels/cuda/launch/attention_shapes.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// What a launch adds to the parameters.
struct TiledParams {
  AttentionParams attention;
  float* partials;
  float scale_log2;  // of scores as powers of two
  int group;         // query heads of a kv head
  int slots;         // of a ring of tiles
  int splits;        // for which there is room in `partials`
  int block_shift;   // logarithm of block_tokens, or -1 where that is no power of two
};

inline TiledParams TiledParamsOf(const TensorAttentionParams& params, int slots) {
  const AttentionParams& attention = params.attention;
  int shift = 0;
  while ((int64_t{1} << shift) < attention.block_tokens) ++shift;
  if ((int64_t{1} << shift) != attention.block_tokens) shift = -1;
  constexpr float kLog2OfE = 1.44269504f;
  return {attention,
          params.partials,
          attention.scale * kLog2OfE,
          static_cast<int>(attention.heads / attention.kv_heads),
          slots,
          MaxSplits(params.max_context),
          shift};
}

inline TensorAttentionExtents ExtentsOf(const TensorAttentionParams& params) {
  const AttentionParams& attention = params.attention;
  return {attention.rows,     attention.sequences, attention.heads,
          attention.kv_heads, attention.head_dim,  params.max_context};
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
