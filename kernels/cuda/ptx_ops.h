// warp_ops.h on a GPU: one PTX instruction each. Operand order follows the PTX ISA 9.0.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/gpu_language.h"
#include "kernels/half_floats.h"

namespace tessera::kernels::cuda::gpu {

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

#define TESSERA_MMA_16X8X16(type)                                                     \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

#define TESSERA_MMA_16X8X8(type)                                          \
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." type "." type      \
               ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])           \
               : "r"(a[0]), "r"(a[1]), "r"(b))

template <typename T>
__device__ __forceinline__ void Mma16x8x8(float (&c)[4], const uint32_t (&a)[2], uint32_t b) {
  if constexpr (std::is_same_v<T, BFloat16>) {
#if __CUDA_ARCH__ >= 800
    TESSERA_MMA_16X8X8("bf16");
#else
    __trap();
#endif
  } else {
    static_assert(std::is_same_v<T, Float16>);
    TESSERA_MMA_16X8X8("f16");
  }
}

template <typename T>
__device__ __forceinline__ void Mma16x8x16(float (&c)[4], const uint32_t (&a)[4],
                                           const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, BFloat16>) {
    TESSERA_MMA_16X8X16("bf16");
  } else {
    static_assert(std::is_same_v<T, Float16>);
    TESSERA_MMA_16X8X16("f16");
  }
#else
  Mma16x8x8<T>(c, {a[0], a[1]}, b[0]);
  Mma16x8x8<T>(c, {a[2], a[3]}, b[1]);
#endif
}

#undef TESSERA_MMA_16X8X16
#undef TESSERA_MMA_16X8X8

__device__ __forceinline__ void LoadMatrices(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}

__device__ __forceinline__ void LoadMatricesTransposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}

__device__ __forceinline__ void CopyAsync16(void* shared, const void* global, bool valid) {
#if __CUDA_ARCH__ >= 800
  // What follows in memory is wanted soon, as a rule.
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
      : "memory");
#else
  const uint4 zeros = {0, 0, 0, 0};
  *static_cast<uint4*>(shared) = valid ? *static_cast<const uint4*>(global) : zeros;
#endif
}

__device__ __forceinline__ void CommitCopies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int newest>
__device__ __forceinline__ void WaitCopies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(newest) : "memory");
#endif
}

__device__ __forceinline__ float Exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

template <typename T>
__device__ __forceinline__ uint32_t RoundPair(float low, float high) {
#if __CUDA_ARCH__ >= 800
  uint32_t pair;
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    static_assert(std::is_same_v<T, Float16>);
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
#else
  return RoundTo<T>(low).bits | static_cast<uint32_t>(RoundTo<T>(high).bits) << 16;
#endif
}

__device__ __forceinline__ int ComputedHere(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

template <typename T>
__device__ __forceinline__ uint32_t AddPairs(uint32_t a, uint32_t b) {
  uint32_t sums;
  if constexpr (std::is_same_v<T, BFloat16>) {
#if __CUDA_ARCH__ >= 800
    // A sum of bf16 is there from 9.0 on, a product with 1 and a sum before.
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sums) : "r"(a), "r"(0x3f803f80u), "r"(b));
#else
    sums = 0;
    __trap();
#endif
  } else {
    static_assert(std::is_same_v<T, Float16>);
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sums) : "r"(a), "r"(b));
  }
  return sums;
}

// The one for bf16.
template <typename T>
__device__ __forceinline__ uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  static_assert(std::is_same_v<T, BFloat16>);
  uint32_t products;
#if __CUDA_ARCH__ >= 800
  // A product of bf16 is there from 9.0 on, a product and a sum with -0 before.
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(products) : "r"(a), "r"(b), "r"(0x80008000u));
#else
  products = 0;
  __trap();
#endif
  return products;
}

__device__ __forceinline__ uint32_t MaskAndOr(uint32_t value, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(value), "r"(mask), "r"(bits));
  return result;
}

__device__ __forceinline__ void SyncNamedBarrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void ArriveNamedBarrier(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace tessera::kernels::cuda::gpu
