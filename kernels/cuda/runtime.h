// cudaError_t and cudaStream_t of the platform that is compiled for, which TESSERA_CUDA_PLATFORM
// names: `gpu`, or `emulated` where TESSERA_CUDA_EMULATED is defined. For .cu files and for the
// host code that calls them.
#pragma once

#ifdef TESSERA_CUDA_EMULATED
#include "kernels/cuda/emulation/runtime.h"
#define TESSERA_CUDA_PLATFORM emulated
#else
#include <cuda_runtime.h>
#define TESSERA_CUDA_PLATFORM gpu
#endif
