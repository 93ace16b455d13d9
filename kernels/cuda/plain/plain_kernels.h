// The plain kernels: one thread per element or per sum, f32 activations, sums in a fixed order.
// They are what every later kernel is held against on a GPU, and serve where no faster one fits.
//
// A launcher enqueues on the stream and returns what the runtime said of the launch; nothing is
// launched where there is nothing to compute. It checks nothing: shapes are checked one layer up
// (ops_check). Pointers are device memory. Strides are elements between rows; rows are dense
// inside. Run under the emulator only: no GPU has run these yet.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime.h"
#include "kernels/dtype.h"

namespace tessera::kernels::cuda {

// RmsNorm of ops.h. A row is `vectors` vectors of `width` (heads of qk-norm), each normalised by
// itself.
struct RmsNormParams {
  float* out;           // [rows, vectors, width]; may equal `in`
  const float* in;      // [rows, vectors, width]
  float* residual;      // [rows, vectors, width] or null: += in, and the sum is normalised
  const float* weight;  // [width]
  int64_t rows, vectors, width;
  int64_t out_stride, in_stride, residual_stride;
  float epsilon;
};

// Embedding of ops.h, from a table.
struct EmbeddingParams {
  float* out;          // [tokens, hidden]
  const void* table;   // [vocabulary_rows, hidden] of table_dtype: f32, f16 or bf16
  const int32_t* ids;  // [tokens]; outside of [begin, begin + rows): zeros
  int64_t tokens, hidden, vocabulary_rows, vocabulary_begin;
  int64_t out_stride, table_stride;
  DType table_dtype;
  bool accumulate;  // out += row
};

// Rope of ops.h.
struct RopeParams {
  float* q;              // [tokens, heads, head_dim], in place
  float* k;              // [tokens, kv_heads, head_dim], in place
  const float* cos_sin;  // [tokens, rotary_dim]: cosines, then sines
  int64_t tokens, heads, kv_heads, head_dim, rotary_dim;
  int64_t q_stride, k_stride, cos_sin_stride;
};

// Linear of ops.h with f32 weights: out = in * weights^T + bias; k ascends in each sum.
struct MatmulParams {
  float* out;            // [rows, columns]
  const float* in;       // [rows, depth]
  const float* weights;  // [columns, depth], dense
  const float* bias;     // [columns] or null
  int64_t rows, columns, depth;
  int64_t out_stride, in_stride;
};

namespace TESSERA_CUDA_PLATFORM {

cudaError_t LaunchRmsNorm(const RmsNormParams& params, cudaStream_t stream);
cudaError_t LaunchEmbedding(const EmbeddingParams& params, cudaStream_t stream);
cudaError_t LaunchRope(const RopeParams& params, cudaStream_t stream);
cudaError_t LaunchMatmul(const MatmulParams& params, cudaStream_t stream);

}  // namespace TESSERA_CUDA_PLATFORM
}  // namespace tessera::kernels::cuda
