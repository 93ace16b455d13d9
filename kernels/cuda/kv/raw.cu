// The raw codec: elements gathered from the cache and scattered into it, a thread per unit of a
// token's row. Rows of the same type move in units of 16 bytes where addresses allow it.
#include "kernels/cuda/kv/exact_floats.h"
#include "kernels/cuda/kv/kv_kernels.h"
#include "kernels/cuda/launch/kv_shapes.h"
#include "kernels/cuda/plain/float_types.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

struct UnitParams {
  KvWireParams code;
  int64_t units = 0;  // all
  int64_t units_per_row = 0;
  int64_t plane_stride = 0, head_stride = 0;  // in units
};

// Where unit `at` of the wire stands in the cache, in units from its start.
__device__ __forceinline__ int64_t CacheUnit(const UnitParams& p, int64_t at) {
  const int64_t row = at / p.units_per_row, line = row / p.code.tokens;
  const int64_t slot = p.code.slots[row % p.code.tokens];
  return line / p.code.kv_heads * p.plane_stride + line % p.code.kv_heads * p.head_stride +
         slot * p.units_per_row + at % p.units_per_row;
}

template <typename Unit, bool encodes>
__global__ void CopyKernel(UnitParams p) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= p.units) return;
  Unit* cache = static_cast<Unit*>(p.code.cache) + CacheUnit(p, at);
  Unit* wire = reinterpret_cast<Unit*>(p.code.wire) + at;
  if (encodes) {
    *wire = *cache;
  } else {
    *cache = *wire;
  }
}

template <typename From, typename To>
__global__ void ConvertKernel(UnitParams p) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= p.units) return;
  static_cast<To*>(p.code.cache)[CacheUnit(p, at)] =
      ExactRound<To>(ExactFloat(reinterpret_cast<const From*>(p.code.wire)[at]));
}

UnitParams InUnits(const KvWireParams& p, int64_t elements_per_unit) {
  UnitParams units = {.code = p};
  units.units_per_row = p.head_dim / elements_per_unit;
  units.units = p.planes * p.kv_heads * p.tokens * units.units_per_row;
  units.plane_stride = p.plane_stride / elements_per_unit;
  units.head_stride = p.head_stride / elements_per_unit;
  return units;
}

bool IsAligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % sizeof(uint4) == 0; }

template <bool encodes>
cudaError_t LaunchCopy(const KvWireParams& p, cudaStream_t stream) {
  const int64_t wide = int64_t{sizeof(uint4)} / SizeInBytes(p.dtype);  // elements
  const bool fits = p.head_dim % wide == 0 && p.plane_stride % wide == 0 &&
                    p.head_stride % wide == 0 && IsAligned(p.cache) && IsAligned(p.wire);
  if (fits) {
    const UnitParams units = InUnits(p, wide);
    return Launch(CopyKernel<uint4, encodes>, KvUnitShape(units.units), stream, units);
  }
  // Rows of codes are whole words of 4 bytes.
  const UnitParams units = InUnits(p, SizeInBytes(p.dtype) == 1 ? 4 : 1);
  const LaunchShape shape = KvUnitShape(units.units);
  return SizeInBytes(p.dtype) == 1 || p.dtype == DType::kF32
             ? Launch(CopyKernel<uint32_t, encodes>, shape, stream, units)
             : Launch(CopyKernel<uint16_t, encodes>, shape, stream, units);
}

}  // namespace

cudaError_t LaunchEncodeRawKv(const KvWireParams& params, cudaStream_t stream) {
  return LaunchCopy<true>(params, stream);
}

cudaError_t LaunchDecodeRawKv(const KvWireParams& params, cudaStream_t stream) {
  if (params.wire_dtype == params.dtype) return LaunchCopy<false>(params, stream);
  const UnitParams units = InUnits(params, 1);
  return WithFloatType(params.wire_dtype, [&](auto from) {
    return WithFloatType(params.dtype, [&](auto to) {
      return Launch(ConvertKernel<decltype(from), decltype(to)>, KvUnitShape(units.units), stream,
                    units);
    });
  });
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
