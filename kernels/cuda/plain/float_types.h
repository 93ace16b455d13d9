// Which kernel template serves a type of activations. For .cu files.
#pragma once

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

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
