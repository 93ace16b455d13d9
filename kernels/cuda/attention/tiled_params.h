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
  Divisor block_tokens;  // as in `attention`
  // The wave: so many sequences (decode) or rows of the call (prefill) from `first` on.
  int first, count;
  int rows_each;  // decode: of a sequence, for which there is room in `partials`; prefill: 0
  int splits;     // of a row and head, for which there is room there
};

inline TiledParams TiledParamsOf(const TensorAttentionParams& params, int slots, const Wave& wave,
                                 bool decode, int64_t first) {
  const AttentionParams& attention = params.attention;
  const int64_t all = decode ? attention.sequences : attention.rows;
  const int64_t count = all - first < wave.count ? all - first : wave.count;
  constexpr float kLog2OfE = 1.44269504f;
  return {attention,
          params.partials,
          attention.scale * kLog2OfE,
          DivisorOf(attention.heads / attention.kv_heads),
          slots,
          DivisorOf(attention.block_tokens),
          static_cast<int>(first),
          static_cast<int>(count),
          decode ? wave.rows_each : 0,
          wave.splits};
}

inline TensorAttentionExtents ExtentsOf(const TensorAttentionParams& params) {
  const AttentionParams& attention = params.attention;
  const bool chunks = attention.chunked && params.max_context > attention.window;
  return {.rows = attention.rows,
          .sequences = attention.sequences,
          .heads = attention.heads,
          .kv_heads = attention.kv_heads,
          .head_dim = attention.head_dim,
          .max_context = params.max_context,
          .general = attention.soft_cap > 0 || chunks};
}

// Adds up the splits of a wave's rows.
cudaError_t LaunchCombine(const TiledParams& params, cudaStream_t stream);

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
