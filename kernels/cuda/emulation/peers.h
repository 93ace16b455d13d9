// The part of the CUDA runtime by which devices reach each other's memory: see runtime.h, whose
// thread rule holds here too. What there is, and what fails, a test says (devices.h).
//
// A handle of another process is refused: emulated memory is its process's own.
#pragma once

#include <cstdint>

#include "kernels/cuda/emulation/runtime.h"

namespace tessera::kernels::cuda::emulated {

// The runtime's numbers; runtime.h has those that all host code needs.
inline constexpr auto cudaErrorInvalidDevice = static_cast<cudaError_t>(101);
inline constexpr auto cudaErrorDeviceUninitialized = static_cast<cudaError_t>(201);
inline constexpr auto cudaErrorMapBufferObjectFailed = static_cast<cudaError_t>(205);
inline constexpr auto cudaErrorPeerAccessUnsupported = static_cast<cudaError_t>(217);
inline constexpr auto cudaErrorPeerAccessAlreadyEnabled = static_cast<cudaError_t>(704);
inline constexpr auto cudaErrorNotSupported = static_cast<cudaError_t>(801);

// 0 of a device to itself, as on a GPU.
cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer);
// From the chosen device. InvalidDevice: it cannot.
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);

struct cudaIpcMemHandle_t {
  char reserved[64];
};
inline constexpr unsigned cudaIpcMemLazyEnablePeerAccess = 1;
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* data);
cudaError_t cudaIpcOpenMemHandle(void** data, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void* data);

}  // namespace tessera::kernels::cuda::emulated
