// Which devices the emulated runtime has, which of them a thread has chosen, whose memory is whose,
// and which device reaches that of which. One device, until a test says otherwise.
//
// Kernels that run on a device may use memory of a peer only where access was enabled, and by loads
// and stores of system scope alone (system_memory.h): those are checked, others are not seen.
//
// Thread rule: any thread; SetPeers while nothing runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera::kernels::cuda::emulated {

// What a test tells the runtime of its devices. Process-wide.
struct Peers {
  int devices = 1;
  // Whether a device can access the memory of a peer; null: each can.
  bool (*can_access)(int device, int peer) = nullptr;
  // Which of the openings to come, by peer access or of a handle, fails, counted from 1; 0: none.
  int64_t failing_open = 0;
  bool gives_handles = true;
  // A handle opens in the process that made it, too, which plays several.
  bool opens_own_handles = false;
};
// Forgets what access was enabled.
void SetPeers(const Peers& peers);
Peers CurrentPeers();

// False: there is no such device. Of the calling thread; 0 before that.
bool ChooseDevice(int device);
int ChosenDevice();

// Memory of the chosen device.
void TakeMemory(const std::byte* data, int64_t size_bytes);
void GiveMemoryBack(const std::byte* data);
// The device whose memory this is; -1: the host's.
int OwnerOf(const void* address);
// What begins there; 0: nothing does.
int64_t SizeFrom(const void* data);

// As CUDA IPC has it: openings that were not closed, of all memory; and how often, so far, memory
// was given back meanwhile, which on a GPU is undefined. False: it was not open.
void OpenMemory(const void* data);
bool CloseMemory(const void* data);
int64_t OpenHandles();
int64_t GivenBackWhileOpen();

// Whether the opening that begins now is to succeed.
bool MayOpen();
bool CanAccess(int device, int peer);
// False: it was enabled before.
bool EnableAccess(int device, int peer);
// Why a kernel on the chosen device does not reach this; empty: it does.
std::string WhyUnreached(const void* address);

}  // namespace tessera::kernels::cuda::emulated
