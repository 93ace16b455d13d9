#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/float_types.h"
#include "kernels/cuda/plain/fours.h"
#include "kernels/cuda/plain/plain_kernels.h"
#include "kernels/cuda/plain/sums.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// What a vector is multiplied with; `squares`: its own.
__device__ __forceinline__ float ScaleOf(const NormParams& p, int64_t row, float squares) {
  const bool whole = p.squares != nullptr;
  const float mean = (whole ? p.squares[row * p.squares_stride] : squares) /
                     static_cast<float>(whole ? p.whole_width : p.width);
  return 1.0f / sqrtf(mean + p.epsilon);
}

// Threads of one y share a vector.
template <typename T>
__global__ void NormKernel(NormParams p) {
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  TESSERA_SHARED(float, sums, kMaxNormWarps);
  const int64_t vector = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64_t row = vector / p.vectors, begin = vector % p.vectors * p.width;
  const int64_t width = vector < p.rows * p.vectors ? p.width : 0;
  const T* in = static_cast<const T*>(p.in) + row * p.in_stride + begin;
  if (p.residual != nullptr) {
    T* residual = static_cast<T*>(p.residual) + row * p.residual_stride + begin;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
      residual[i] = RoundTo<T>(AsFloat(residual[i]) + AsFloat(in[i]));
    }
    in = residual;  // of which a thread reads what it wrote
  }
  float mean = 0;
  if (p.subtract_mean) {
    float sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += AsFloat(in[i]);
    mean = SumOfRow(sum, sums) / static_cast<float>(p.width);
  }
  float squares = 0;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const float x = AsFloat(in[i]) - mean;
    squares += x * x;
  }
  squares = SumOfRow(squares, sums);
  const float scale = width > 0 ? ScaleOf(p, row, squares) : 0.0f;
  const float* weight = p.weight + vector % p.vectors * p.weight_stride;
  const int64_t out = row * p.out_stride + begin;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const float x = (AsFloat(in[i]) - mean) * scale * weight[i];
    const float normed[1] = {p.bias == nullptr ? x : x + p.bias[i]};
    StoreOutputs<T>(p.out, p.out_dtype, out + i, normed);
  }
}

__device__ inline int64_t FourOfThread(int f) { return kFour * (f * blockDim.x + threadIdx.x); }

// Adds `x` to the residual; `x` becomes what that is then, rounded as it is stored.
template <typename T, int kFours>
__device__ inline void AddToResidual(T* residual, int64_t width, float (&x)[kFours][kFour]) {
  float added[kFours][kFour];
#pragma unroll
  for (int f = 0; f < kFours; ++f) {
    if (FourOfThread(f) < width) LoadFour(residual + FourOfThread(f), added[f]);
  }
#pragma unroll
  for (int f = 0; f < kFours; ++f) {
    if (FourOfThread(f) >= width) continue;
    T rounded[kFour];
#pragma unroll
    for (int i = 0; i < kFour; ++i) {
      rounded[i] = RoundTo<T>(added[f][i] + x[f][i]);
      x[f][i] = AsFloat(rounded[i]);
    }
    StoreFour(residual + FourOfThread(f), rounded);
  }
}

// A block per vector, fours of elements in registers: what is wide, and begins at multiples of
// four.
template <typename T, int kFours>
__global__ void __launch_bounds__(kWarpThreads* kMaxWideNormWarps) WideNormKernel(NormParams p) {
  TESSERA_SHARED(float, sums, kMaxWideNormWarps);
  const int64_t vector = blockIdx.x;
  const int64_t row = p.vectors == 1 ? vector : vector / p.vectors;
  const int64_t begin = (vector - row * p.vectors) * p.width;
  const T* in = static_cast<const T*>(p.in) + row * p.in_stride + begin;
  const float* weight = p.weight + (vector - row * p.vectors) * p.weight_stride;
  float weights[kFours][kFour];
#pragma unroll
  for (int f = 0; f < kFours; ++f) {
    if (FourOfThread(f) < p.width) LoadFour(weight + FourOfThread(f), weights[f]);
  }
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  float x[kFours][kFour] = {};
#pragma unroll
  for (int f = 0; f < kFours; ++f) {
    if (FourOfThread(f) < p.width) LoadFour(in + FourOfThread(f), x[f]);
  }
  if (p.residual != nullptr) {
    AddToResidual<T, kFours>(static_cast<T*>(p.residual) + row * p.residual_stride + begin, p.width,
                             x);
  }
  float mean = 0;
  if (p.subtract_mean) {
    float sum = 0;
#pragma unroll
    for (int f = 0; f < kFours; ++f) sum += (x[f][0] + x[f][1]) + (x[f][2] + x[f][3]);
    mean = SumOfRow(sum, sums) / static_cast<float>(p.width);
  }
  float squares = 0;
#pragma unroll
  for (int f = 0; f < kFours; ++f) {
    if (FourOfThread(f) >= p.width) continue;
#pragma unroll
    for (int i = 0; i < kFour; ++i) {
      x[f][i] -= mean;
      squares += x[f][i] * x[f][i];
    }
  }
  squares = SumOfRow(squares, sums);
  const float scale = ScaleOf(p, row, squares);
  const int64_t out = row * p.out_stride + begin;
#pragma unroll
  for (int f = 0; f < kFours; ++f) {
    if (FourOfThread(f) >= p.width) continue;
    float biases[kFour] = {};
    if (p.bias != nullptr) LoadFour(p.bias + FourOfThread(f), biases);
    float normed[kFour];
#pragma unroll
    for (int i = 0; i < kFour; ++i) normed[i] = x[f][i] * scale * weights[f][i] + biases[i];
    StoreOutputs<T>(p.out, p.out_dtype, out + FourOfThread(f), normed);
  }
}

// A block per row.
template <typename T>
__global__ void SumSquaresKernel(SumSquaresParams p) {
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  TESSERA_SHARED(float, sums, kMaxNormWarps);
  const int64_t row = blockIdx.x;
  const T* in = static_cast<const T*>(p.in) + row * p.in_stride;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < p.width; i += blockDim.x) {
    const float x = AsFloat(in[i]);
    squares += x * x;
  }
  squares = SumOfRow(squares, sums);
  if (threadIdx.x == 0) p.out[row * p.out_stride] = squares;
}

template <typename T>
bool IsWide(const NormParams& p) {
  const auto has_fours = [&](const void* rows, int64_t stride, int64_t bytes) {
    return HasFours(rows, stride, p.width, bytes);
  };
  return HasWideNorm(p.width) && has_fours(p.in, p.in_stride, sizeof(T)) &&
         has_fours(p.out, p.out_stride, SizeInBytes(p.out_dtype)) &&
         has_fours(p.residual, p.residual_stride, sizeof(T)) &&
         has_fours(p.weight, 0, sizeof(float)) && has_fours(p.bias, 0, sizeof(float));
}

}  // namespace

cudaError_t LaunchNorm(const NormParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.vectors == 0) return cudaSuccess;
  const int64_t vectors = params.rows * params.vectors;
  return WithFloatType(params.dtype, [&](auto type) {
    using T = decltype(type);
    if (!IsWide<T>(params)) {
      return LaunchEarly(NormKernel<T>, NormShape(vectors, params.width), stream, params);
    }
    const LaunchShape shape = WideNormShape(vectors, params.width);
    // Two are enough up to a width of 4096.
    return params.width <= 2 * kFour * shape.threads.x
               ? LaunchEarly(WideNormKernel<T, 2>, shape, stream, params)
               : LaunchEarly(WideNormKernel<T, kWideNormFours>, shape, stream, params);
  });
}

cudaError_t LaunchSumSquares(const SumSquaresParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  const LaunchShape shape = {.blocks = {params.rows}, .threads = {kWarpThreads * kMaxNormWarps}};
  return WithFloatType(params.dtype, [&](auto type) {
    return LaunchEarly(SumSquaresKernel<decltype(type)>, shape, stream, params);
  });
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
