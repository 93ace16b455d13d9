// Which kernel template serves codes of weights. For .cu files.
#pragma once

#include "kernels/cuda/codes.h"
#include "kernels/cuda/platform.h"
#include "kernels/dtype.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// launch(W{}) with the type of the weights of `p`, a struct as LinearParams; InvalidValue for
// weights that are no codes.
template <typename Params, typename LaunchWith>
cudaError_t WithCodeType(const Params& p, LaunchWith launch) {
  switch (p.weight_dtype) {
    case DType::kF8: return launch(Float8{});
    case DType::kI8: return launch(int8_t{});
    case DType::kI4:
      if (p.e2m1) return launch(E2m1{});
      return p.blocks.size > 0 ? launch(OffsetNibbles{}) : launch(Nibbles{});
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
