#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/plain_kernels.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr int kTile = kMatmulTile;
constexpr int kStride = kTile + 1;  // no two rows of a tile begin in one bank

// A tile of outputs; tiles of both factors pass through shared memory along k.
__global__ void MatmulKernel(MatmulParams p) {
  TESSERA_SHARED(float, in_tile, kTile* kStride);
  TESSERA_SHARED(float, weight_tile, kTile* kStride);
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t first_column = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t row = first_row + y, column = first_column + x;
  float sum = 0;
  for (int64_t first_k = 0; first_k < p.depth; first_k += kTile) {
    const int64_t k = first_k + x, weight_row = first_column + y;
    in_tile[y * kStride + x] = row < p.rows && k < p.depth ? p.in[row * p.in_stride + k] : 0.0f;
    weight_tile[y * kStride + x] =
        weight_row < p.columns && k < p.depth ? p.weights[weight_row * p.depth + k] : 0.0f;
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += in_tile[y * kStride + i] * weight_tile[x * kStride + i];
    __syncthreads();
  }
  if (row >= p.rows || column >= p.columns) return;
  p.out[row * p.out_stride + column] = p.bias == nullptr ? sum : sum + p.bias[column];
}

}  // namespace

cudaError_t LaunchMatmul(const MatmulParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.columns == 0) return cudaSuccess;
  return Launch(MatmulKernel, MatmulShape(params.rows, params.columns), stream, params);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
