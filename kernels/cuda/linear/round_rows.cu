#include <type_traits>

#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/linear/linear_kernels.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr float kLargestFloat16 = 65504.0f;

// NaN stays NaN.
template <typename T>
__device__ __forceinline__ T Saturated(float value) {
  if constexpr (std::is_same_v<T, Float16>) {
    if (value > kLargestFloat16) value = kLargestFloat16;
    if (value < -kLargestFloat16) value = -kLargestFloat16;
  }
  return RoundTo<T>(value);
}

// A block per row, a thread per element.
template <typename In, typename Out>
__global__ void RoundRowsKernel(RoundRowsParams p) {
  const int64_t row = blockIdx.x;
  const In* in = static_cast<const In*>(p.in) + row * p.in_stride;
  Out* out = static_cast<Out*>(p.out) + row * p.out_stride;
  const int64_t padded = (p.width + 7) / 8 * 8;
  for (int64_t i = threadIdx.x; i < padded; i += blockDim.x) {
    out[i] = Saturated<Out>(i < p.width ? AsFloat(in[i]) : 0.0f);
  }
}

}  // namespace

cudaError_t LaunchRoundRows(const RoundRowsParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  const LaunchShape shape = RowShape(params.rows, params.width);
  const bool from_float = params.in_dtype == DType::kF32;
  if (!from_float && params.in_dtype != params.out_dtype) return cudaErrorInvalidValue;
  switch (params.out_dtype) {
    case DType::kBF16:
      return from_float ? Launch(RoundRowsKernel<float, BFloat16>, shape, stream, params)
                        : Launch(RoundRowsKernel<BFloat16, BFloat16>, shape, stream, params);
    case DType::kF16:
      return from_float ? Launch(RoundRowsKernel<float, Float16>, shape, stream, params)
                        : Launch(RoundRowsKernel<Float16, Float16>, shape, stream, params);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
