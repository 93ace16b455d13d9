// The codecs of 8 and 4 bits: a block per group of tokens of a line. Its threads find or read the
// scales into shared memory, then each writes bytes of codes, or elements of the cache.
#include "kernels/cuda/kv/exact_floats.h"
#include "kernels/cuda/kv/kv_kernels.h"
#include "kernels/cuda/kv/raw.h"
#include "kernels/cuda/launch/kv_shapes.h"
#include "kernels/cuda/plain/float_types.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// Bytes of what the wire holds, [0] of keys and [1] of values.
struct GroupParams {
  KvWireParams code;
  int64_t groups = 0, chunks = 0, max_scales = 0;
  int64_t line_bytes[2] = {}, group_bytes[2] = {};
};

// The group that a block works on.
struct Group {
  bool values;
  int64_t tokens, scales;
  int64_t cache;         // element of the line's slot 0
  const int32_t* slots;  // [tokens]
  unsigned char* wire;   // scales, zeros, codes
};

__device__ __forceinline__ Group GroupOf(const GroupParams& p, int64_t block) {
  const KvWireParams& code = p.code;
  const int64_t line = block / p.groups, index = block % p.groups;
  const int64_t plane = line / code.kv_heads, head = line % code.kv_heads;
  Group group;
  group.values = (plane % 2 == 1) != code.values_first;
  group.tokens = kKvGroup;
  if (code.tokens - index * kKvGroup < kKvGroup) group.tokens = code.tokens - index * kKvGroup;
  group.scales = group.values ? group.tokens * p.chunks : code.head_dim;
  group.cache = plane * code.plane_stride + head * code.head_stride;
  group.slots = code.slots + index * kKvGroup;
  // Planes before this one: half of them, or one more, of the first kind.
  const int64_t first_kind = (plane + 1) / 2, second_kind = plane / 2;
  const int first = code.values_first ? 1 : 0;
  const int kind = group.values ? 1 : 0;
  group.wire =
      code.wire +
      code.kv_heads * (first_kind * p.line_bytes[first] + second_kind * p.line_bytes[1 - first]) +
      head * p.line_bytes[kind] + index * p.group_bytes[kind];
  return group;
}

// Element `at` of the group, token by token.
__device__ __forceinline__ int64_t CacheElement(const GroupParams& p, const Group& group,
                                                int64_t at) {
  return group.cache + group.slots[at / p.code.head_dim] * p.code.head_dim + at % p.code.head_dim;
}

__device__ __forceinline__ int64_t ScaleOf(const GroupParams& p, const Group& group, int64_t at) {
  const int64_t channel = at % p.code.head_dim;
  return group.values ? at / p.code.head_dim * p.chunks + channel / kKvGroup : channel;
}

// The wire's halves need not stand at even addresses.
__device__ __forceinline__ void WriteHalf(unsigned char* to, Float16 value) {
  to[0] = static_cast<unsigned char>(value.bits & 0xffu);
  to[1] = static_cast<unsigned char>(value.bits >> 8);
}
__device__ __forceinline__ float ReadHalf(const unsigned char* from) {
  return ExactFloat(Float16{static_cast<uint16_t>(from[0] | from[1] << 8)});
}

// Finds scale `index` of the group: the first least and the last most of its elements decide.
template <typename T, int levels>
__device__ __forceinline__ void FindScale(const GroupParams& p, const Group& group, int64_t index,
                                          float* scales, float* zeros) {
  const T* cache = static_cast<const T*>(p.code.cache);
  const int64_t head_dim = p.code.head_dim;
  const int64_t channel = group.values ? index % p.chunks * kKvGroup : index;
  const int64_t token = group.values ? index / p.chunks : 0;
  int64_t count = group.values ? kKvGroup : group.tokens;
  if (group.values && head_dim - channel < kKvGroup) count = head_dim - channel;
  const int64_t step = group.values ? 1 : head_dim;
  float least = 0, most = 0;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = token * head_dim + channel + i * step;
    const float value = ExactFloat(cache[CacheElement(p, group, at)]);
    finite = finite && IsFinite(value);
    if (i == 0 || value < least) least = value;
    // Zeros of both signs are equal: the sign that the scale gets depends on which one is taken.
    if (i == 0 || value > most || (group.values && value == most)) most = value;
  }
  const Float16 zero = ExactRound<Float16>(finite ? least : QuietNan());
  const Float16 scale =
      ExactRound<Float16>(finite ? (most - least) / static_cast<float>(levels) : QuietNan());
  WriteHalf(group.wire + 2 * index, scale);
  WriteHalf(group.wire + 2 * (group.scales + index), zero);
  scales[index] = ExactFloat(scale);
  zeros[index] = ExactFloat(zero);
}

template <typename T, int levels>
__device__ __forceinline__ unsigned CodeOf(const GroupParams& p, const Group& group, int64_t at,
                                           const float* scales, const float* zeros) {
  const int64_t index = ScaleOf(p, group, at);
  if (!(scales[index] > 0)) return 0;
  const float value = ExactFloat(static_cast<const T*>(p.code.cache)[CacheElement(p, group, at)]);
  const float code = rintf((value - zeros[index]) / scales[index]);
  if (!(code > 0)) return 0;
  return code < static_cast<float>(levels) ? static_cast<unsigned>(code) : levels;
}

template <typename T, int bits>
__global__ void EncodeKernel(GroupParams p) {
  TESSERA_DYNAMIC_SHARED(shared);
  constexpr int kLevels = (1 << bits) - 1;
  float* scales = reinterpret_cast<float*>(shared);
  float* zeros = scales + p.max_scales;
  const Group group = GroupOf(p, blockIdx.x);
  for (int64_t i = threadIdx.x; i < group.scales; i += blockDim.x) {
    FindScale<T, kLevels>(p, group, i, scales, zeros);
  }
  __syncthreads();
  unsigned char* codes = group.wire + 4 * group.scales;
  const int64_t elements = group.tokens * p.code.head_dim;
  constexpr int kCodes = 8 / bits;  // of one byte
  for (int64_t i = threadIdx.x; i * kCodes < elements; i += blockDim.x) {
    unsigned byte = 0;
    for (int part = 0; part < kCodes && i * kCodes + part < elements; ++part) {
      byte |= CodeOf<T, kLevels>(p, group, i * kCodes + part, scales, zeros) << part * bits;
    }
    codes[i] = static_cast<unsigned char>(byte);
  }
}

template <typename T, int bits>
__global__ void DecodeKernel(GroupParams p) {
  TESSERA_DYNAMIC_SHARED(shared);
  float* scales = reinterpret_cast<float*>(shared);
  float* zeros = scales + p.max_scales;
  const Group group = GroupOf(p, blockIdx.x);
  for (int64_t i = threadIdx.x; i < group.scales; i += blockDim.x) {
    scales[i] = ReadHalf(group.wire + 2 * i);
    zeros[i] = ReadHalf(group.wire + 2 * (group.scales + i));
  }
  __syncthreads();
  const unsigned char* codes = group.wire + 4 * group.scales;
  constexpr int kCodes = 8 / bits;
  for (int64_t i = threadIdx.x; i < group.tokens * p.code.head_dim; i += blockDim.x) {
    const unsigned byte = codes[i / kCodes];
    const unsigned code = (byte >> static_cast<int>(i % kCodes) * bits) & ((1u << bits) - 1);
    const int64_t index = ScaleOf(p, group, i);
    // The product has no more bits than a float: fused or not, the sum is the same.
    float value = zeros[index] + scales[index] * static_cast<float>(code);
    if (value != value) value = QuietNan();
    static_cast<T*>(p.code.cache)[CacheElement(p, group, i)] = ExactRound<T>(value);
  }
}

GroupParams InGroups(const KvWireParams& p) {
  GroupParams groups = {.code = p};
  groups.groups = (p.tokens + kKvGroup - 1) / kKvGroup;
  groups.chunks = ValueChunks(p.head_dim);
  groups.max_scales = MaxKvGroupScales(p.head_dim);
  for (const int kind : {0, 1}) {
    groups.line_bytes[kind] = KvLineBytes(kind == 1, p.tokens, p.head_dim, p.coding, 0);
    groups.group_bytes[kind] = KvGroupBytes(kind == 1, kKvGroup, p.head_dim, p.coding);
  }
  return groups;
}

}  // namespace

cudaError_t LaunchEncodeKv(const KvWireParams& params, cudaStream_t stream) {
  if (params.planes * params.kv_heads * params.tokens * params.head_dim == 0) return cudaSuccess;
  if (params.coding == KvWireCoding::kRaw) return LaunchEncodeRawKv(params, stream);
  const GroupParams groups = InGroups(params);
  const LaunchShape shape =
      KvGroupShape(params.planes * params.kv_heads * groups.groups, params.head_dim);
  return WithFloatType(params.dtype, [&](auto type) {
    using T = decltype(type);
    return params.coding == KvWireCoding::kInt8 ? Launch(EncodeKernel<T, 8>, shape, stream, groups)
                                                : Launch(EncodeKernel<T, 4>, shape, stream, groups);
  });
}

cudaError_t LaunchDecodeKv(const KvWireParams& params, cudaStream_t stream) {
  if (params.planes * params.kv_heads * params.tokens * params.head_dim == 0) return cudaSuccess;
  if (params.coding == KvWireCoding::kRaw) return LaunchDecodeRawKv(params, stream);
  const GroupParams groups = InGroups(params);
  const LaunchShape shape =
      KvGroupShape(params.planes * params.kv_heads * groups.groups, params.head_dim);
  return WithFloatType(params.dtype, [&](auto type) {
    using T = decltype(type);
    return params.coding == KvWireCoding::kInt8 ? Launch(DecodeKernel<T, 8>, shape, stream, groups)
                                                : Launch(DecodeKernel<T, 4>, shape, stream, groups);
  });
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
