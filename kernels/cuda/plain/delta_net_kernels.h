// The plain kernels of layers that keep a state of each sequence, see plain_kernels.h for what
// holds for all of them.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime.h"

namespace tessera::kernels::cuda {

// SeatArgs of ops.h.
struct SeatParams {
  const int32_t* query_starts = nullptr;     // [sequences + 1]
  const int32_t* context_lengths = nullptr;  // [sequences]
  const int32_t* seats = nullptr;            // [sequences]
  const int32_t* draft_rows = nullptr;       // [sequences], or null: none
  int64_t sequences = 0;
};

// CausalConv of ops.h.
struct CausalConvParams {
  float* rows = nullptr;           // [tokens, channels], in place
  const float* weights = nullptr;  // [channels, taps]
  float* states = nullptr;         // [seats, taps - 1, channels]
  SeatParams at;
  int64_t channels = 0, taps = 0, rows_stride = 0;
};

// GatedDelta of ops.h. InvalidValue where keys have more than kMaxDeltaKeys elements.
struct GatedDeltaParams {
  float* values = nullptr;         // [tokens, value_heads, value_dim], in place
  const float* queries = nullptr;  // [tokens, key_heads, key_dim]
  const float* keys = nullptr;     // [tokens, key_heads, key_dim]
  const float* gates = nullptr;    // [tokens, 2 * value_heads]
  const float* decay_log = nullptr;
  const float* decay_bias = nullptr;
  float* states = nullptr;  // [seats, value_heads, key_dim, value_dim]
  SeatParams at;
  int64_t value_heads = 0, key_heads = 0, key_dim = 0, value_dim = 0;
  int64_t values_stride = 0, queries_stride = 0, keys_stride = 0, gates_stride = 0;
};

namespace TESSERA_CUDA_PLATFORM {

cudaError_t LaunchCausalConv(const CausalConvParams& params, cudaStream_t stream);
cudaError_t LaunchGatedDelta(const GatedDeltaParams& params, cudaStream_t stream);

}  // namespace TESSERA_CUDA_PLATFORM
}  // namespace tessera::kernels::cuda
