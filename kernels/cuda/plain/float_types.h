// Which kernel template serves a type of activations, and how it stores others. For .cu files.
#pragma once

#include <type_traits>

#include "kernels/cuda/plain/fours.h"
#include "kernels/cuda/platform.h"
#include "kernels/dtype.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// launch(T{}) with the activations' type; InvalidValue for what is none.
template <typename LaunchAs>
cudaError_t WithFloatType(DType dtype, LaunchAs launch) {
  switch (dtype) {
    case DType::kF32: return launch(float{});
    case DType::kBF16: return launch(BFloat16{});
    case DType::kF16: return launch(Float16{});
    default: return cudaErrorInvalidValue;
  }
}

// out[element] and behind it, rounded.
template <typename T, int count>
__device__ __forceinline__ void StoreRounded(void* out, int64_t element,
                                             const float (&values)[count]) {
  T rounded[count];
#pragma unroll
  for (int i = 0; i < count; ++i) rounded[i] = RoundTo<T>(values[i]);
  StoreElements<count>(static_cast<T*>(out) + element, rounded);
}

// out[element] and behind it, in a type, f32 or 16 bits.
template <int count>
__device__ __forceinline__ void StoreAs(void* out, DType dtype, int64_t element,
                                        const float (&values)[count]) {
  switch (dtype) {
    case DType::kBF16: return StoreRounded<BFloat16>(out, element, values);
    case DType::kF16: return StoreRounded<Float16>(out, element, values);
    default: StoreElements<count>(static_cast<float*>(out) + element, values);
  }
}

// Outputs of an op whose inputs are T: of the same type, or where that is f32 of any.
template <typename T, int count>
__device__ __forceinline__ void StoreOutputs(void* out, DType dtype, int64_t element,
                                             const float (&values)[count]) {
  if constexpr (std::is_same_v<T, float>) {
    StoreAs(out, dtype, element, values);
  } else {
    StoreRounded<T>(out, element, values);
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
