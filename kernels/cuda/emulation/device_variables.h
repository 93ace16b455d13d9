// threadIdx and its like, as an emulated kernel reads them. The block that runs sets them.
#pragma once

namespace tessera::kernels::cuda::emulated {

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

inline thread_local constinit uint3 threadIdx;
inline thread_local constinit uint3 blockIdx;
inline thread_local constinit dim3 blockDim;
inline thread_local constinit dim3 gridDim;

}  // namespace tessera::kernels::cuda::emulated
