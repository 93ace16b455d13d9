// Qk-norm, rotation and the writing of keys and values in one pass.
#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/attention_kernels.h"
#include "kernels/cuda/plain/float_types.h"
#include "kernels/cuda/plain/kv_codes.h"
#include "kernels/cuda/plain/sums.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// A warp per head of q, k or v of a token. T: activations, C: the cache.
template <typename T, typename C>
__global__ void PrepareAttentionKernel(PrepareAttentionParams p) {
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  const int64_t token = blockIdx.x;
  const int64_t vector = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  if (vector >= p.heads + 2 * p.kv_heads) return;  // the whole warp
  const bool is_query = vector < p.heads, is_value = vector >= p.heads + p.kv_heads;
  const int64_t head = is_query ? vector : (vector - p.heads) % p.kv_heads;
  const T* in = static_cast<const T*>(is_query   ? p.q
                                      : is_value ? p.v
                                                 : p.k) +
                token * (is_query   ? p.q_stride
                         : is_value ? p.v_stride
                                    : p.k_stride) +
                head * p.head_dim;
  T* const out = is_value ? nullptr : const_cast<T*>(in);  // in place
  const int64_t slot = p.slots[token];
  C* cached = nullptr;
  if (!is_query && slot >= 0) {
    cached = static_cast<C*>(is_value ? p.values : p.keys) +
             head * (is_value ? p.values_stride : p.keys_stride) +
             slot * KvRowElements<C>(p.head_dim);
  }
  const float* const weight = is_query ? p.q_norm : is_value ? nullptr : p.k_norm;
  float scale = 1;
  if (weight != nullptr) {
    float squares = 0;
    for (int64_t i = threadIdx.x; i < p.head_dim; i += kWarpThreads) {
      const float x = AsFloat(in[i]);
      squares += x * x;
    }
    squares = SumOfWarp(squares);
    scale = 1.0f / sqrtf(squares / static_cast<float>(p.head_dim) + p.epsilon);
  }
  const auto normed = [&](int64_t i) {
    const float x = AsFloat(in[i]);
    return weight == nullptr ? x : AsFloat(RoundTo<T>(x * scale * weight[i]));
  };
  const auto put = [&](int64_t i, float x) {
    const T rounded = RoundTo<T>(x);
    if (out != nullptr) out[i] = rounded;
    if constexpr (!kHasScales<C>) {
      if (cached != nullptr) cached[i] = RoundTo<C>(AsFloat(rounded));
    }
  };
  const int64_t rotary = is_value ? 0 : p.rotary_dim, half = rotary / 2;
  const float* const cosines = p.cos_sin + token * p.cos_sin_stride;
  // A lane puts only elements that no other lane reads any more.
  for (int64_t i = threadIdx.x; i < half; i += kWarpThreads) {
    const float a = normed(i), b = normed(half + i);
    put(i, a * cosines[i] - b * cosines[half + i]);
    put(half + i, b * cosines[i] + a * cosines[half + i]);
  }
  for (int64_t i = rotary + threadIdx.x; i < p.head_dim; i += kWarpThreads) put(i, normed(i));
  if constexpr (kHasScales<C>) {
    __syncwarp();  // all of the key is in place
    if (cached != nullptr) WriteKvRow<C>(in, p.head_dim, cached);
  }
}

}  // namespace

cudaError_t LaunchPrepareAttention(const PrepareAttentionParams& params, cudaStream_t stream) {
  const int64_t vectors = params.heads + 2 * params.kv_heads;
  if (params.tokens == 0 || vectors == 0) return cudaSuccess;
  if (params.head_dim > kMaxPreparedHead) return cudaErrorInvalidValue;
  return WithFloatType(params.dtype, [&](auto type) {
    return WithCacheType(params.cache_dtype, [&](auto cached) {
      return LaunchEarly(PrepareAttentionKernel<decltype(type), decltype(cached)>,
                         HeadsShape(params.tokens, vectors), stream, params);
    });
  });
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
