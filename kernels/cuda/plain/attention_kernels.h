// The plain kernels of attention, see plain_kernels.h for what holds for all of them.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime.h"
#include "kernels/dtype.h"

namespace tessera::kernels::cuda {

// KvWrite of ops.h.
struct KvWriteParams {
  void* keys = nullptr;            // [kv_heads, slots, row] of cache_dtype, as KvCacheView has it
  void* values = nullptr;          // the same
  const void* k = nullptr;         // [tokens, kv_heads, head_dim]
  const void* v = nullptr;         // the same
  const int32_t* slots = nullptr;  // [tokens]; below 0: writes nothing
  int64_t tokens = 0, kv_heads = 0, head_dim = 0;
  int64_t keys_stride = 0, values_stride = 0, k_stride = 0, v_stride = 0;
  DType cache_dtype = DType::kF32, dtype = DType::kF32;
};

// PrepareAttention of ops.h: a pass over q, k and v with the bits of LaunchNorm, LaunchRope and
// LaunchKvWrite. head_dim: up to kMaxPreparedHead.
struct PrepareAttentionParams {
  void* q = nullptr;               // [tokens, heads, head_dim]
  void* k = nullptr;               // [tokens, kv_heads, head_dim]
  const void* v = nullptr;         // the same
  const float* q_norm = nullptr;   // [head_dim] or null: no norm
  const float* k_norm = nullptr;   // the same
  const float* cos_sin = nullptr;  // [tokens, rotary_dim]
  void* keys = nullptr;            // [kv_heads, slots, row] of cache_dtype, as KvCacheView has it
  void* values = nullptr;          // the same
  const int32_t* slots = nullptr;  // [tokens]; below 0: writes nothing to the cache
  int64_t tokens = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t rotary_dim = 0;  // 0: no rotation
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, cos_sin_stride = 0;
  int64_t keys_stride = 0, values_stride = 0;
  float epsilon = 0;
  DType cache_dtype = DType::kF32, dtype = DType::kF32;
};
inline constexpr int64_t kMaxPreparedHead = 512;  // of which a warp alone sums the squares

// Attention of ops.h, in f32 whatever its products may be rounded to.
struct AttentionParams {
  void* out = nullptr;                       // [rows, heads, head_dim]
  const void* q = nullptr;                   // [rows, heads, head_dim]
  const void* keys = nullptr;                // [kv_heads, blocks, block_tokens, row] of cache_dtype
  const void* values = nullptr;              // the same, as KvCacheView has it
  const int32_t* query_starts = nullptr;     // [sequences + 1]
  const int32_t* context_lengths = nullptr;  // [sequences]
  const int32_t* block_tables = nullptr;     // [sequences, blocks of a sequence]
  const float* sinks = nullptr;              // [heads] or null
  int64_t rows = 0, sequences = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t block_tokens = 0, window = 0;
  bool chunked = false;  // windows are chunks
  int64_t out_stride = 0, q_stride = 0, keys_stride = 0, values_stride = 0, table_stride = 0;
  float scale = 1;
  float soft_cap = 0;  // 0: none
  DType cache_dtype = DType::kF32, dtype = DType::kF32, out_dtype = DType::kF32;
};

namespace TESSERA_CUDA_PLATFORM {

cudaError_t LaunchKvWrite(const KvWriteParams& params, cudaStream_t stream);
cudaError_t LaunchPrepareAttention(const PrepareAttentionParams& params, cudaStream_t stream);
cudaError_t LaunchAttention(const AttentionParams& params, cudaStream_t stream);

}  // namespace TESSERA_CUDA_PLATFORM
}  // namespace tessera::kernels::cuda
