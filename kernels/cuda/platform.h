// The language of kernels, on both platforms: a .cu file compiles by nvcc for GPUs and by g++ for
// the emulator (kernels/cuda/emulation) from one source. Only .cu files include this header.
//
// Its code lives in `namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM`, which is `gpu` or
// `emulated`: a program may hold both. Beyond CUDA C++17 there are
//   - TESSERA_SHARED(type, name, count) and TESSERA_DYNAMIC_SHARED(name) instead of __shared__,
//   - AsFloat(value) of a float, BFloat16 or Float16, and RoundTo<T>(value), which of float16 is
//     never infinite; WithinFloat16(value),
//   - Launch(kernel, shape, stream, params) instead of <<<>>>; a kernel takes one struct,
//   - LaunchEarly, the same for a kernel that may begin while the launch before it runs (CUDA's
//     programmatic dependent launch, from capability 9.0 on). Every thread of it calls
//     WaitForEarlierLaunches() before it touches what an earlier launch writes or reads; weights,
//     and what copies bring, it may read before. LetNextLaunchBegin(), called behind that, is for
//     the next launch,
//   - the instructions of warp_ops.h instead of inline PTX.
// Two rules: no block waits for another one of its own grid; floats are summed in an order that
// depends on the extent of the sum alone, so that every schedule gives the same bits.
#pragma once

#include "kernels/cuda/runtime.h"

#ifdef TESSERA_CUDA_EMULATED
#include "kernels/cuda/emulation/device_language.h"
#else
#include "kernels/cuda/gpu_language.h"
#endif
