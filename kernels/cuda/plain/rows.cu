// Embedding, gather, add: a thread per element of a row. Activations: a thread per four of them.
// Fed tokens, sums of ranks: a thread per element.
#include "kernels/cuda/codes.h"
#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/float_types.h"
#include "kernels/cuda/plain/fours.h"
#include "kernels/cuda/plain/plain_kernels.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// Element `i` of a row of weights; of int8 and int4, with the scales behind the row.
template <typename T>
__device__ __forceinline__ float TableValue(const EmbeddingParams&, const char* row, int64_t i) {
  return AsFloat(reinterpret_cast<const T*>(row)[i]);
}
template <>
__device__ __forceinline__ float TableValue<int8_t>(const EmbeddingParams& p, const char* row,
                                                    int64_t i) {
  return CodeWeight<int8_t>(row, i, p.scales_offset_bytes, p.group_size);
}
template <>
__device__ __forceinline__ float TableValue<Float8>(const EmbeddingParams& p, const char* row,
                                                    int64_t i) {
  return CodeWeight<Float8>(row, i, p.scales_offset_bytes, p.group_size);
}
template <>
__device__ __forceinline__ float TableValue<Nibbles>(const EmbeddingParams& p, const char* row,
                                                     int64_t i) {
  return NibbleWeight(row, i, p.scales_offset_bytes, p.group_size);
}
template <>
__device__ __forceinline__ float TableValue<E2m1>(const EmbeddingParams& p, const char* row,
                                                  int64_t i) {
  return E2m1Weight(row, i, p.scales_offset_bytes, p.group_size);
}
template <>
__device__ __forceinline__ float TableValue<OffsetNibbles>(const EmbeddingParams& p,
                                                           const char* row, int64_t i) {
  return OffsetNibbleWeight(p, row, i);
}

template <typename Table, typename T>
__global__ void EmbeddingKernel(EmbeddingParams p) {
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  const int64_t token = blockIdx.x;
  const int64_t id = p.ids[token] - p.vocabulary_begin;
  const bool present = id >= 0 && id < p.vocabulary_rows;
  const char* row = static_cast<const char*>(p.table) + (present ? id : 0) * p.table_row_bytes;
  T* out = static_cast<T*>(p.out) + token * p.out_stride;
  for (int64_t i = FirstOfThread(); i < p.hidden; i += ThreadsOfRow()) {
    const float value = present ? TableValue<Table>(p, row, i) : 0.0f;
    out[i] = RoundTo<T>(p.accumulate ? AsFloat(out[i]) + value : value);
  }
}

template <typename T>
__global__ void GatherKernel(GatherParams p) {
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  const int64_t row = blockIdx.x, source = p.source_rows[row];
  const bool present = source >= 0 && source < p.in_rows;
  const T* in = static_cast<const T*>(p.in) + (present ? source : 0) * p.in_stride;
  T* out = static_cast<T*>(p.out) + row * p.out_stride;
  for (int64_t i = FirstOfThread(); i < p.width; i += ThreadsOfRow()) {
    out[i] = present ? in[i] : RoundTo<T>(0.0f);
  }
}

__global__ void FeedTokensKernel(FeedTokensParams p) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= p.tokens || p.ids[i] > p.first_fed) return;
  const int64_t row = static_cast<int64_t>(p.first_fed) - p.ids[i];
  const int32_t token = row < p.rows ? p.drawn[row] : -1;
  p.ids[i] = token < 0 ? -1 : token;
}

template <typename T>
__global__ void AddKernel(AddParams p) {
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  const T* in = static_cast<const T*>(p.in) + blockIdx.x * p.in_stride;
  T* out = static_cast<T*>(p.out) + blockIdx.x * p.out_stride;
  for (int64_t i = FirstOfThread(); i < p.width; i += ThreadsOfRow()) {
    out[i] = RoundTo<T>(AsFloat(out[i]) + AsFloat(in[i]));
  }
}

__global__ void SumRanksKernel(SumRanksParams p) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= p.count) return;
  float sum = p.in[0][i];
  for (int r = 1; r < p.ranks; ++r) sum += p.in[r][i];
  p.out[i] = sum;
}

template <typename T>
__global__ void ScaleKernel(ScaleParams p) {
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  T* row = static_cast<T*>(p.rows) + blockIdx.x * p.stride;
  float factor = p.factor;
  if (p.positions != nullptr && p.positions[blockIdx.x] >= 0) {
    const int64_t periods =
        (static_cast<int64_t>(p.positions[blockIdx.x]) + p.position_offset) / p.position_period;
    factor *= 1.0f + p.position_gain * logf(1.0f + static_cast<float>(periods));
  }
  for (int64_t i = FirstOfThread(); i < p.width; i += ThreadsOfRow()) {
    float x = AsFloat(row[i]) * factor;
    if (p.soft_cap > 0) x = p.soft_cap * tanhf(x / p.soft_cap);
    row[i] = RoundTo<T>(p.limit > 0 ? fmaxf(-p.limit, fminf(p.limit, x)) : x);
  }
}

__device__ __forceinline__ float Softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }
__device__ __forceinline__ float GeluErf(float x) {
  return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}

__device__ __forceinline__ float Activated(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::kSilu: return x / (1.0f + expf(-x));
    case ActivationKind::kGeluErf: return GeluErf(x);
    case ActivationKind::kGeluTanh:
      return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case ActivationKind::kRelu: return x > 0 ? x : 0.0f;
    case ActivationKind::kRelu2: return x > 0 ? x * x : 0.0f;
    case ActivationKind::kRelu6: return fminf(6.0f, fmaxf(0.0f, x));
    case ActivationKind::kLeakyRelu: return x > 0 ? x : 0.01f * x;
    case ActivationKind::kSigmoid: return 1.0f / (1.0f + expf(-x));
    case ActivationKind::kTanh: return tanhf(x);
    case ActivationKind::kLinear: return x;
    case ActivationKind::kHardSwish: return x * fminf(6.0f, fmaxf(0.0f, x + 3.0f)) / 6.0f;
    case ActivationKind::kMish: return x * tanhf(Softplus(x));
    case ActivationKind::kLaplace:
      return 0.5f * (1.0f + erff((x - 0.707107f) / (0.282095f * 1.41421356237309505f)));
    case ActivationKind::kQuickGelu: return x / (1.0f + expf(-1.702f * x));
    case ActivationKind::kGelu10: return fminf(10.0f, fmaxf(-10.0f, GeluErf(x)));
    case ActivationKind::kSqrtSoftplus: return sqrtf(Softplus(x));
  }
  return 0;
}

// A thread per `count` elements.
template <typename T, int count>
__global__ void ActivationKernel(ActivationParams p) {
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  const T* in = static_cast<const T*>(p.in) + blockIdx.x * p.in_stride;
  const int64_t out = blockIdx.x * p.out_stride;
  for (int64_t at = FirstOfThread() * count; at < p.width; at += ThreadsOfRow() * count) {
    float x[count], factors[count];
    LoadElements<count>(in + at, x);
    if (p.gated) LoadElements<count>(in + p.width + at, factors);
    float activated[count];
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float value = Activated(p.kind, x[i]);
      activated[i] = p.gated ? value * factors[i] : value;
    }
    StoreOutputs<T>(p.out, p.out_dtype, out + at, activated);
  }
}

template <typename T>
__global__ void ClampedGateKernel(ClampedGateParams p) {
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  const T* in = static_cast<const T*>(p.in) + blockIdx.x * p.in_stride;
  const int64_t out = blockIdx.x * p.out_stride;
  for (int64_t i = FirstOfThread(); i < p.width; i += ThreadsOfRow()) {
    const float gate = fminf(AsFloat(in[i]), p.limit);
    const float up = fmaxf(fminf(AsFloat(in[p.width + i]), p.limit), -p.limit);
    const float gated[1] = {(up + 1.0f) * gate / (1.0f + expf(-p.alpha * gate))};
    StoreOutputs<T>(p.out, p.out_dtype, out + i, gated);
  }
}

template <typename T>
cudaError_t LaunchEmbeddingInto(const EmbeddingParams& p, cudaStream_t stream) {
  const LaunchShape shape = SpreadShape(p.tokens, p.hidden);
  switch (p.table_dtype) {
    case DType::kF32: return LaunchEarly(EmbeddingKernel<float, T>, shape, stream, p);
    case DType::kF16: return LaunchEarly(EmbeddingKernel<Float16, T>, shape, stream, p);
    case DType::kBF16: return LaunchEarly(EmbeddingKernel<BFloat16, T>, shape, stream, p);
    case DType::kF8: return LaunchEarly(EmbeddingKernel<Float8, T>, shape, stream, p);
    case DType::kI8: return LaunchEarly(EmbeddingKernel<int8_t, T>, shape, stream, p);
    case DType::kI4:
      if (p.e2m1) return LaunchEarly(EmbeddingKernel<E2m1, T>, shape, stream, p);
      return p.blocks.size > 0 ? LaunchEarly(EmbeddingKernel<OffsetNibbles, T>, shape, stream, p)
                               : LaunchEarly(EmbeddingKernel<Nibbles, T>, shape, stream, p);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t LaunchEmbedding(const EmbeddingParams& params, cudaStream_t stream) {
  if (params.tokens == 0) return cudaSuccess;
  return WithFloatType(
      params.dtype, [&](auto type) { return LaunchEmbeddingInto<decltype(type)>(params, stream); });
}

cudaError_t LaunchGather(const GatherParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return WithFloatType(params.dtype, [&](auto type) {
    return LaunchEarly(GatherKernel<decltype(type)>, SpreadShape(params.rows, params.width), stream,
                       params);
  });
}

cudaError_t LaunchFeedTokens(const FeedTokensParams& params, cudaStream_t stream) {
  if (params.tokens == 0) return cudaSuccess;
  return Launch(FeedTokensKernel, ElementShape(params.tokens), stream, params);
}

cudaError_t LaunchAdd(const AddParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return WithFloatType(params.dtype, [&](auto type) {
    return LaunchEarly(AddKernel<decltype(type)>, SpreadShape(params.rows, params.width), stream,
                       params);
  });
}

cudaError_t LaunchScale(const ScaleParams& params, cudaStream_t stream) {
  if (params.count == 0) return cudaSuccess;
  return WithFloatType(params.dtype, [&](auto type) {
    return LaunchEarly(ScaleKernel<decltype(type)>, SpreadShape(params.count, params.width), stream,
                       params);
  });
}

cudaError_t LaunchSumRanks(const SumRanksParams& params, cudaStream_t stream) {
  if (params.count == 0) return cudaSuccess;
  return Launch(SumRanksKernel, ElementShape(params.count), stream, params);
}

cudaError_t LaunchClampedGate(const ClampedGateParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return WithFloatType(params.dtype, [&](auto type) {
    return LaunchEarly(ClampedGateKernel<decltype(type)>, SpreadShape(params.rows, params.width),
                       stream, params);
  });
}

cudaError_t LaunchActivation(const ActivationParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return WithFloatType(params.dtype, [&](auto type) {
    using T = decltype(type);
    if (HasFours(params.in, params.in_stride, params.width, sizeof(T)) &&
        HasFours(params.out, params.out_stride, params.width, SizeInBytes(params.out_dtype))) {
      return LaunchEarly(ActivationKernel<T, kFour>, SpreadShape(params.rows, params.width / kFour),
                         stream, params);
    }
    return LaunchEarly(ActivationKernel<T, 1>, SpreadShape(params.rows, params.width), stream,
                       params);
  });
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
