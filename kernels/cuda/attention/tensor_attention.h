// Attention of ops.h on tensor cores: keys and values of bf16 (from capability 8.0 on) or f16 (from
// 7.5), queries of the same type or f32 rounded to it, sums in f32.
//
// Of heads of up to 256, a sequence of up to kFewRows rows is decode's, one of more rows is
// prefill's; each launcher leaves the rows of the other alone, so that a step of both calls both.
// The bits of a row depend on its sequence and on which of the two it is, on nothing beside it:
// drafts that are verified have the bits of single rows, and chunks of more than kFewRows rows
// those of the whole prompt. Keys that a row does not see may be anything; values that only other
// rows of its sequence see must be finite numbers, or the row is NaN.
//
// Pointers are device memory. What attention_choice.h asks of types and strides is not checked
// here.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch/attention_shapes.h"
#include "kernels/cuda/plain/attention_kernels.h"
#include "kernels/cuda/runtime.h"

namespace tessera::kernels::cuda {

struct TensorAttentionParams {
  AttentionParams attention;
  int64_t max_context = 0;                // no context has more keys
  bool one_row = false;                   // no sequence has two to kFewRows rows
  float* partials = nullptr;              // PartialBytes of attention_shapes.h
  int64_t wave_bytes = kMaxPartialBytes;  // of partials, in a launch
  int capability = 0;                     // of the GPU: 90 is 9.0
};

namespace TESSERA_CUDA_PLATFORM {

cudaError_t LaunchPrefillAttention(const TensorAttentionParams& params, cudaStream_t stream);
cudaError_t LaunchDecodeAttention(const TensorAttentionParams& params, cudaStream_t stream);
// All rows of wide heads (IsWideHead); the two above take others.
cudaError_t LaunchWideAttention(const TensorAttentionParams& params, cudaStream_t stream);

}  // namespace TESSERA_CUDA_PLATFORM
}  // namespace tessera::kernels::cuda
