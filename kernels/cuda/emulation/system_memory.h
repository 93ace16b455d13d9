// kernels/cuda/system_ops.h under the emulator: atomic accesses of the host, since another device
// is another thread or another process. Where devices take turns (device_turns.h), each access is a
// place where the turn may pass.
//
// Thread rule: of the kernels that call it.
#pragma once

#include <cstdint>

#include "kernels/cuda/emulation/device_language.h"

namespace tessera::kernels::cuda::emulated {

uint64_t LoadAcquireSystem(const uint64_t* from);
void StoreReleaseSystem(uint64_t* to, uint64_t value);
uint32_t LoadSystem(const uint32_t* from);
float4 LoadSystem(const float4* from);
void StoreSystem(uint32_t* to, uint32_t value);
void StoreSystem(uint64_t* to, uint64_t value);
void StoreSystem(float4* to, float4 value);
// Stands still where devices take turns.
uint64_t SystemNanoseconds();
// A fault of the calling thread where devices take turns and all of them wait.
void LetOtherDevicesRun(Place place = Place::current());

}  // namespace tessera::kernels::cuda::emulated
