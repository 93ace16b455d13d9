// Attention of ops.h over keys and values in 8 bits on tensor cores: int8 or e4m3 with a scale of
// each row (kernels/kv_rows.h), queries of any type of activations rounded to bf16 (from capability
// 8.0 on) or f16, sums in f32.
//
// A sequence of up to kCodeFewRows rows has its context split, so that few rows keep a GPU busy;
// one of more rows has not. The bits of a row depend on which of the two its sequence is, on
// nothing beside it. Keys that a row does not see may be anything.
//
// Pointers are device memory. What code_attention_choice.h asks of types and strides is not checked
// here.
#pragma once

#include <cstdint>

#include "kernels/cuda/plain/attention_kernels.h"
#include "kernels/cuda/runtime.h"

namespace tessera::kernels::cuda {

struct CodeAttentionParams {
  AttentionParams attention;
  DType out_dtype = DType::kF32;
  DType products = DType::kBF16;  // kBF16, or kF16
  int64_t max_context = 0;        // no context has more keys
  bool one_row = false;           // no sequence has more
  float* partials = nullptr;      // CodePartialBytes of launch/code_attention_shapes.h
  int capability = 0;             // of the GPU: 90 is 9.0
};

namespace TESSERA_CUDA_PLATFORM {

cudaError_t LaunchCodeAttention(const CodeAttentionParams& params, cudaStream_t stream);

}  // namespace TESSERA_CUDA_PLATFORM
}  // namespace tessera::kernels::cuda
