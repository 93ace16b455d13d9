#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/plain_kernels.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

template <typename T>
__global__ void EmbeddingKernel(EmbeddingParams p) {
  const int64_t token = blockIdx.x;
  const int64_t id = p.ids[token] - p.vocabulary_begin;
  const bool present = id >= 0 && id < p.vocabulary_rows;
  const T* row = static_cast<const T*>(p.table) + (present ? id : 0) * p.table_stride;
  float* out = p.out + token * p.out_stride;
  for (int64_t i = threadIdx.x; i < p.hidden; i += blockDim.x) {
    const float value = present ? AsFloat(row[i]) : 0.0f;
    out[i] = p.accumulate ? out[i] + value : value;
  }
}

}  // namespace

cudaError_t LaunchEmbedding(const EmbeddingParams& params, cudaStream_t stream) {
  if (params.tokens == 0) return cudaSuccess;
  const LaunchShape shape = EmbeddingShape(params.tokens, params.hidden);
  switch (params.table_dtype) {
    case DType::kF32: return Launch(EmbeddingKernel<float>, shape, stream, params);
    case DType::kF16: return Launch(EmbeddingKernel<Float16>, shape, stream, params);
    case DType::kBF16: return Launch(EmbeddingKernel<BFloat16>, shape, stream, params);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
