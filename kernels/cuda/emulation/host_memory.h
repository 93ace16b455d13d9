// The part of the CUDA runtime that pins memory which the process has already: see runtime.h, whose
// thread rule holds here too. The emulated device reaches all memory of the process.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/emulation/runtime.h"

namespace tessera::kernels::cuda::emulated {

inline constexpr unsigned cudaHostRegisterPortable = 1;
inline constexpr unsigned cudaHostRegisterMapped = 2;

// Whole pages, none of which is registered. MemoryAllocation: beyond what `LimitRegistered` allows.
cudaError_t cudaHostRegister(void* data, std::size_t size_bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* data);
// `data` was registered, to be mapped.
cudaError_t cudaHostGetDevicePointer(void** on_device, void* data, unsigned flags);

// Bytes that are registered now; and how many may be, of this process, for tests.
int64_t RegisteredBytes();
void LimitRegistered(int64_t bytes);

}  // namespace tessera::kernels::cuda::emulated
