// system_ops.h on a GPU: one PTX instruction each. Operand order follows the PTX ISA 9.0.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tessera::kernels::cuda::gpu {

__device__ __forceinline__ uint64_t LoadAcquireSystem(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
               : "=l"(value)
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return value;
}

__device__ __forceinline__ void StoreReleaseSystem(uint64_t* to, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "l"(value)
               : "memory");
}

__device__ __forceinline__ uint32_t LoadSystem(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return value;
}

__device__ __forceinline__ float4 LoadSystem(const float4* from) {
  float4 value;
  asm volatile("ld.relaxed.sys.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return value;
}

__device__ __forceinline__ void StoreSystem(uint32_t* to, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "r"(value)
               : "memory");
}

__device__ __forceinline__ void StoreSystem(uint64_t* to, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "l"(value)
               : "memory");
}

__device__ __forceinline__ void StoreSystem(float4* to, float4 value) {
  asm volatile(
      "st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
      : "memory");
}

__device__ __forceinline__ uint64_t SystemNanoseconds() {
  uint64_t nanoseconds;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds));
  return nanoseconds;
}

__device__ __forceinline__ void LetOtherDevicesRun() {}

}  // namespace tessera::kernels::cuda::gpu
