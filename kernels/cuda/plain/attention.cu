// KvWrite and paged attention, any head size.
#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/attention_kernels.h"
#include "kernels/cuda/plain/float_types.h"
#include "kernels/cuda/plain/kv_codes.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// A block per token, a thread per element of its key and value.
template <typename T, typename C>
__global__ void KvWriteKernel(KvWriteParams p) {
  const int64_t token = blockIdx.x, slot = p.slots[token];
  if (slot < 0) return;
  const T* k = static_cast<const T*>(p.k) + token * p.k_stride;
  const T* v = static_cast<const T*>(p.v) + token * p.v_stride;
  for (int64_t i = threadIdx.x; i < p.kv_heads * p.head_dim; i += blockDim.x) {
    const int64_t head = i / p.head_dim, place = slot * p.head_dim + i % p.head_dim;
    static_cast<C*>(p.keys)[head * p.keys_stride + place] = RoundTo<C>(AsFloat(k[i]));
    static_cast<C*>(p.values)[head * p.values_stride + place] = RoundTo<C>(AsFloat(v[i]));
  }
}

// A warp per key and value of a head of each token. C has scales.
template <typename T, typename C>
__global__ void KvWriteCodesKernel(KvWriteParams p) {
  const int64_t token = blockIdx.x, slot = p.slots[token];
  const int64_t vector = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  if (slot < 0 || vector >= 2 * p.kv_heads) return;  // the whole warp
  const bool is_value = vector >= p.kv_heads;
  const int64_t head = vector % p.kv_heads;
  const T* in = is_value ? static_cast<const T*>(p.v) + token * p.v_stride
                         : static_cast<const T*>(p.k) + token * p.k_stride;
  C* heads = is_value ? static_cast<C*>(p.values) + head * p.values_stride
                      : static_cast<C*>(p.keys) + head * p.keys_stride;
  WriteKvRow<C>(in + head * p.head_dim, p.head_dim, heads + slot * KvRowElements<C>(p.head_dim));
}

// The sequence of a row: the last one that starts at or before it.
__device__ __forceinline__ int64_t SequenceOf(const AttentionParams& p, int64_t row) {
  int64_t low = 0, high = p.sequences;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (p.query_starts[middle] <= row ? low : high) = middle;
  }
  return low;
}

// The sums of a row and head over their total.
template <typename T>
__device__ void StoreMeans(const AttentionParams& p, int64_t row, int64_t head, const float* sums,
                           float total) {
  const int64_t out = row * p.out_stride + head * p.head_dim;
  for (int64_t d = threadIdx.x; d < p.head_dim; d += blockDim.x) {
    const float mean[1] = {sums[d] / total};
    StoreOutputs<T>(p.out, p.out_dtype, out + d, mean);
  }
}

// A block attends one row with one head. Its keys come in tiles, from the first one that the row
// sees: a thread per key for the scores, then a thread per element of the head for the sums, which
// run over the keys in order. So the sums depend on what the row sees alone.
template <typename T, typename C>
__global__ void AttentionKernel(AttentionParams p) {
  TESSERA_DYNAMIC_SHARED(memory);
  auto* const scores = reinterpret_cast<float*>(memory);                    // [tile], then weights
  auto* const slots = reinterpret_cast<int32_t*>(scores + kAttentionTile);  // [tile]
  auto* const query = reinterpret_cast<float*>(slots + kAttentionTile);     // [head_dim]
  float* const sums = query + p.head_dim;                                   // [head_dim]
  TESSERA_SHARED(float, largest_of_tiles, 1);
  TESSERA_SHARED(float, total_of_all, 1);
  const int64_t row = blockIdx.x, head = blockIdx.y;
  const int64_t sequence = SequenceOf(p, row);
  if (p.sequences == 0 || row < p.query_starts[sequence] || row >= p.query_starts[sequence + 1]) {
    return;  // the whole block
  }
  const int64_t end = p.context_lengths[sequence] - (p.query_starts[sequence + 1] - row) + 1;
  const int64_t of_chunk = p.chunked ? (end - 1) % p.window + 1 : p.window;
  const int64_t begin = p.window == 0 || end < of_chunk ? 0 : end - of_chunk;
  const int64_t kv_head = head / (p.heads / p.kv_heads);
  const C* keys = static_cast<const C*>(p.keys) + kv_head * p.keys_stride;
  const C* values = static_cast<const C*>(p.values) + kv_head * p.values_stride;
  const int32_t* table = p.block_tables + sequence * p.table_stride;
  const T* q = static_cast<const T*>(p.q) + row * p.q_stride + head * p.head_dim;
  for (int64_t d = threadIdx.x; d < p.head_dim; d += blockDim.x) {
    query[d] = AsFloat(q[d]) * p.scale;
    sums[d] = 0;
  }
  __syncthreads();
  float largest = -INFINITY, total = 0;
  for (int64_t tile = begin; tile < end; tile += kAttentionTile) {
    const int count = static_cast<int>(min(end - tile, static_cast<int64_t>(kAttentionTile)));
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
      const int64_t position = tile + i;
      const int64_t slot =
          table[position / p.block_tokens] * p.block_tokens + position % p.block_tokens;
      const auto key = CachedRow<C>::Of(keys, slot, p.head_dim);
      float dot = 0;
      for (int64_t d = 0; d < p.head_dim; ++d) dot += query[d] * key[d];
      scores[i] = p.soft_cap > 0 ? p.soft_cap * tanhf(dot / p.soft_cap) : dot;
      slots[i] = static_cast<int32_t>(slot);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      float most = largest;
      for (int i = 0; i < count; ++i) most = fmaxf(most, scores[i]);
      largest_of_tiles[0] = most;
    }
    __syncthreads();
    const float rescale = expf(largest - largest_of_tiles[0]);
    largest = largest_of_tiles[0];
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
      scores[i] = expf(scores[i] - largest);
    }
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) {  // the one that most often has nothing else to sum
      total *= rescale;
      for (int i = 0; i < count; ++i) total += scores[i];
      total_of_all[0] = total;
    }
    for (int64_t d = threadIdx.x; d < p.head_dim; d += blockDim.x) {
      float sum = sums[d] * rescale;
      for (int i = 0; i < count; ++i) {
        sum += scores[i] * CachedRow<C>::Of(values, slots[i], p.head_dim)[d];
      }
      sums[d] = sum;
    }
    __syncthreads();  // before the next tile's scores
  }
  const float of_sink = p.sinks == nullptr ? 0.0f : expf(p.sinks[head] - largest);
  StoreMeans<T>(p, row, head, sums, total_of_all[0] + of_sink);
}

}  // namespace

cudaError_t LaunchKvWrite(const KvWriteParams& params, cudaStream_t stream) {
  const int64_t width = params.kv_heads * params.head_dim;
  if (params.tokens == 0 || width == 0) return cudaSuccess;
  return WithFloatType(params.dtype, [&](auto type) {
    return WithCacheType(params.cache_dtype, [&](auto cached) {
      using T = decltype(type);
      using C = decltype(cached);
      if constexpr (kHasScales<C>) {
        return Launch(KvWriteCodesKernel<T, C>, HeadsShape(params.tokens, 2 * params.kv_heads),
                      stream, params);
      } else {
        return Launch(KvWriteKernel<T, C>, RowShape(params.tokens, width), stream, params);
      }
    });
  });
}

cudaError_t LaunchAttention(const AttentionParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.heads == 0 || params.head_dim == 0) return cudaSuccess;
  const LaunchShape shape = AttendShape(params.rows, params.heads, params.head_dim);
  return WithFloatType(params.dtype, [&](auto type) {
    return WithCacheType(params.cache_dtype, [&](auto cached) {
      return Launch(AttentionKernel<decltype(type), decltype(cached)>, shape, stream, params);
    });
  });
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
