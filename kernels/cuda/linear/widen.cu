// Codes as 16-bit weights, for products that are faster with those.
#include "kernels/cuda/codes.h"
#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/linear/linear_kernels.h"
#include "kernels/cuda/plain/code_types.h"
#include "kernels/cuda/plain/fours.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// Blocks (columns, parts of the depth), a thread for two inputs. Rows end in zeros.
template <typename T, typename W>
__global__ void WidenKernel(WidenParams p) {
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  const char* const row =
      static_cast<const char*>(p.weights) + int64_t{blockIdx.x} * p.weight_row_bytes;
  auto* const out = reinterpret_cast<uint32_t*>(static_cast<T*>(p.out) + blockIdx.x * p.out_stride);
  for (int64_t pair = FirstOfThread(); 2 * pair < p.out_stride; pair += ThreadsOfRow()) {
    float values[2] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (2 * pair + i < p.depth) values[i] = WeightOf<W>(p, row, 2 * pair + i);
    }
    out[pair] = RoundTo<T>(values[0]).bits | static_cast<uint32_t>(RoundTo<T>(values[1]).bits)
                                                 << 16;
  }
}

template <typename T>
cudaError_t LaunchAs(const WidenParams& p, cudaStream_t stream) {
  const LaunchShape shape = SpreadShape(p.columns, p.out_stride / 2);
  return WithCodeType(
      p, [&](auto type) { return LaunchEarly(WidenKernel<T, decltype(type)>, shape, stream, p); });
}

}  // namespace

cudaError_t LaunchWiden(const WidenParams& params, cudaStream_t stream) {
  if (params.columns == 0 || params.out_stride == 0) return cudaSuccess;
  switch (params.out_dtype) {
    case DType::kBF16: return LaunchAs<BFloat16>(params, stream);
    case DType::kF16: return LaunchAs<Float16>(params, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
