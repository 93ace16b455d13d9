// The launchers of the raw codec, of params whose coding is kRaw and that have something to do.
#pragma once

#include "kernels/cuda/kv/kv_kernels.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

cudaError_t LaunchEncodeRawKv(const KvWireParams& params, cudaStream_t stream);
cudaError_t LaunchDecodeRawKv(const KvWireParams& params, cudaStream_t stream);

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
