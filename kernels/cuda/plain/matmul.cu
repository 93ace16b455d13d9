#include "kernels/cuda/codes.h"
#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/code_types.h"
#include "kernels/cuda/plain/float_types.h"
#include "kernels/cuda/plain/plain_kernels.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr int kTile = kMatmulTile;
constexpr int kStride = kTile + 1;  // no two rows of a tile begin in one bank

// A tile of outputs; tiles of both factors pass through shared memory along k.
template <typename T, typename W>
__global__ void MatmulKernel(MatmulParams p) {
  TESSERA_SHARED(float, in_tile, kTile* kStride);
  TESSERA_SHARED(float, weight_tile, kTile* kStride);
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int64_t begin = p.row_range == nullptr ? 0 : p.row_range[0];
  const int64_t end = p.row_range == nullptr ? p.rows : p.row_range[1];
  const int64_t first_row = begin + static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t first_column = static_cast<int64_t>(blockIdx.y) * kTile;
  if (first_row >= end) return;  // the whole block
  const int64_t row = first_row + y, column = first_column + x, weight_column = first_column + y;
  const int64_t source = row < end && p.source_rows != nullptr ? p.source_rows[row] : row;
  const T* in = static_cast<const T*>(p.in) + source * p.in_stride;
  const char* weights = static_cast<const char*>(p.weights) + weight_column * p.weight_row_bytes;
  float sum = 0;
  for (int64_t first_k = 0; first_k < p.depth; first_k += kTile) {
    const int64_t k = first_k + x;
    in_tile[y * kStride + x] = row < end && k < p.depth ? AsFloat(in[k]) : 0.0f;
    weight_tile[y * kStride + x] =
        weight_column < p.columns && k < p.depth ? WeightOf<W>(p, weights, k) : 0.0f;
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += in_tile[y * kStride + i] * weight_tile[x * kStride + i];
    __syncthreads();
  }
  if (row >= end || column >= p.columns) return;
  if (p.bias != nullptr) sum += p.bias[column];
  const int64_t at = row * p.out_stride + column;
  switch (p.out_dtype) {
    case DType::kBF16: static_cast<BFloat16*>(p.out)[at] = RoundTo<BFloat16>(sum); break;
    case DType::kF16: static_cast<Float16*>(p.out)[at] = RoundTo<Float16>(sum); break;
    default: static_cast<float*>(p.out)[at] = sum;
  }
}

template <typename T>
cudaError_t LaunchMatmulOf(const MatmulParams& p, cudaStream_t stream) {
  const LaunchShape shape = MatmulShape(p.rows, p.columns);
  const auto launch = [&](auto type) {
    return Launch(MatmulKernel<T, decltype(type)>, shape, stream, p);
  };
  const bool floats = p.weight_dtype == DType::kF32 || p.weight_dtype == DType::kBF16 ||
                      p.weight_dtype == DType::kF16;
  return floats ? WithFloatType(p.weight_dtype, launch) : WithCodeType(p, launch);
}

}  // namespace

cudaError_t LaunchMatmul(const MatmulParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.columns == 0) return cudaSuccess;
  return WithFloatType(params.in_dtype,
                       [&](auto type) { return LaunchMatmulOf<decltype(type)>(params, stream); });
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
