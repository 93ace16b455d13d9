#include "kernels/cuda/emulation/peers.h"

#include <unistd.h>

#include <cstring>

#include "kernels/cuda/emulation/devices.h"

namespace tessera::kernels::cuda::emulated {
namespace {

// What a handle holds.
struct Exported {
  uint64_t process;
  void* data;
};

}  // namespace

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
  const int devices = CurrentPeers().devices;
  if (device < 0 || device >= devices || peer < 0 || peer >= devices) return cudaErrorInvalidDevice;
  *can_access = CanAccess(device, peer) ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  int can_access = 0;
  const cudaError_t error = cudaDeviceCanAccessPeer(&can_access, ChosenDevice(), peer);
  if (error != cudaSuccess) return error;
  if (flags != 0) return cudaErrorInvalidValue;
  if (can_access == 0) return cudaErrorInvalidDevice;
  if (!MayOpen()) return cudaErrorPeerAccessUnsupported;
  return EnableAccess(ChosenDevice(), peer) ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* data) {
  if (!CurrentPeers().gives_handles) return cudaErrorNotSupported;
  if (SizeFrom(data) == 0) return cudaErrorInvalidValue;
  *handle = {};
  const Exported exported = {static_cast<uint64_t>(getpid()), data};
  std::memcpy(handle->reserved, &exported, sizeof exported);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** data, cudaIpcMemHandle_t handle, unsigned flags) {
  Exported exported;
  std::memcpy(&exported, handle.reserved, sizeof exported);
  if (flags != cudaIpcMemLazyEnablePeerAccess) return cudaErrorInvalidValue;
  if (exported.process != static_cast<uint64_t>(getpid())) return cudaErrorNotSupported;
  if (!CurrentPeers().opens_own_handles) return cudaErrorDeviceUninitialized;
  const int owner = OwnerOf(exported.data);
  if (owner < 0) return cudaErrorInvalidValue;
  if (!MayOpen()) return cudaErrorMapBufferObjectFailed;
  if (owner != ChosenDevice()) {
    if (!CanAccess(ChosenDevice(), owner)) return cudaErrorPeerAccessUnsupported;
    EnableAccess(ChosenDevice(), owner);
  }
  OpenMemory(exported.data);
  *data = exported.data;
  return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void* data) {
  return CloseMemory(data) ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace tessera::kernels::cuda::emulated
