// kernels/cuda/system_ops.h under the emulator: atomic accesses of the host, since another device
// is another thread or another process. Where devices take turns (device_turns.h), each access is a
// place where the turn may pass. Memory of another device that the running one was given no access
// to (devices.h) is a fault.
//
// Thread rule: of the kernels that call it.
#pragma once

#include <cstdint>

#include "kernels/cuda/emulation/device_language.h"

namespace tessera::kernels::cuda::emulated {

uint64_t LoadAcquireSystem(const uint64_t* from, Place place = Place::current());
void StoreReleaseSystem(uint64_t* to, uint64_t value, Place place = Place::current());
uint32_t LoadSystem(const uint32_t* from, Place place = Place::current());
float4 LoadSystem(const float4* from, Place place = Place::current());
void StoreSystem(uint32_t* to, uint32_t value, Place place = Place::current());
void StoreSystem(uint64_t* to, uint64_t value, Place place = Place::current());
void StoreSystem(float4* to, float4 value, Place place = Place::current());
// Stands still where devices take turns.
uint64_t SystemNanoseconds();
// A fault of the calling thread where devices take turns and all of them wait.
void LetOtherDevicesRun(Place place = Place::current());

}  // namespace tessera::kernels::cuda::emulated
