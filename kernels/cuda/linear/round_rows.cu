#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/linear/linear_kernels.h"
#include "kernels/cuda/plain/float_types.h"
#include "kernels/cuda/plain/fours.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// A thread per `count` elements; of four at once there is no padding.
template <typename In, typename Out, int count>
__global__ void RoundRowsKernel(RoundRowsParams p) {
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  const int64_t row = blockIdx.x;
  const In* in = static_cast<const In*>(p.in) + row * p.in_stride;
  Out* out = static_cast<Out*>(p.out) + row * p.out_stride;
  const int64_t padded = (p.width + 7) / 8 * 8;
  for (int64_t at = FirstOfThread() * count; at < padded; at += ThreadsOfRow() * count) {
    float values[count] = {};
    if (at < p.width) LoadElements<count>(in + at, values);
    Out rounded[count];
#pragma unroll
    for (int i = 0; i < count; ++i) rounded[i] = RoundTo<Out>(values[i]);
    StoreElements<count>(out + at, rounded);
  }
}

template <typename In, typename Out>
cudaError_t LaunchRounding(const RoundRowsParams& p, cudaStream_t stream) {
  const bool fours = HasFours(p.in, p.in_stride, p.width, sizeof(In)) &&
                     HasFours(p.out, p.out_stride, p.width, sizeof(Out)) && p.width % 8 == 0;
  if (fours) {
    return LaunchEarly(RoundRowsKernel<In, Out, kFour>, SpreadShape(p.rows, p.width / kFour),
                       stream, p);
  }
  return LaunchEarly(RoundRowsKernel<In, Out, 1>, SpreadShape(p.rows, p.width), stream, p);
}

}  // namespace

cudaError_t LaunchRoundRows(const RoundRowsParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  const bool from_float = params.in_dtype == DType::kF32;
  if (!from_float && params.in_dtype != params.out_dtype) return cudaErrorInvalidValue;
  switch (params.out_dtype) {
    case DType::kBF16:
      return from_float ? LaunchRounding<float, BFloat16>(params, stream)
                        : LaunchRounding<BFloat16, BFloat16>(params, stream);
    case DType::kF16:
      return from_float ? LaunchRounding<float, Float16>(params, stream)
                        : LaunchRounding<Float16, Float16>(params, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
